packages=(gdc-12 libgphobos-12-dev)
build() {
    gdc-12 -O1 -c "$sources/d.d" -o driver.o
    gdc-12 -shared-libphobos driver.o -o native
    echo "inputs=(--library libgphobos.so.3 --library libgdruntime.so.3 --library libm.so.6 driver.o)" >inputs
}
