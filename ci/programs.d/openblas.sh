# Its Fortran parts want gfortran's library.
packages=(libopenblas-pthread-dev libgfortran5)
build() {
    local archive
    archive=$(dpkg -L libopenblas-pthread-dev | grep '/libopenblas\.a$')
    gcc -O1 -c "$sources/openblas.c" -o driver.o
    gcc driver.o "$archive" -l:libgfortran.so.5 -lm -lpthread -o native
    echo "inputs=(--library libgfortran.so.5 --library libm.so.6 driver.o '$archive')" >inputs
}
