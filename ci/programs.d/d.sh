packages=(gdc-12)
build() {
    # gdc's runtime looks for the image of each module in dl_iterate_phdr, and ends the process where there is none.
    echo "not run until loaded code has a place in the process: programs with D's runtime" >notes
    gdc-12 -O1 -fno-druntime -c "$sources/d.d" -o driver.o
    gcc driver.o -o native
    echo "inputs=(driver.o)" >inputs
}
