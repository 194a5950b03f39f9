packages=(libsqlite3-dev)
build() {
    gcc -O2 -c "$sources/sqlite.c" -o driver.o
    gcc driver.o -l:libsqlite3.a -lm -lz -o native || gcc driver.o -l:libsqlite3.a -lm -o native
    echo "inputs=(driver.o '$(library_file libsqlite3.a)')" >inputs
}
