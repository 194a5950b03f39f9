packages=(gfortran-12)
build() {
    gfortran-12 -O1 -fopenmp -c "$sources/fortran.f90" -o driver.o
    gfortran-12 -fopenmp driver.o -o native
    echo "inputs=(--library libgfortran.so.5 --library libgomp.so.1 --library libm.so.6 driver.o)" >inputs
}
