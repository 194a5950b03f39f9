packages=(gnat-12)
build() {
    local folder
    cp "$sources/ada.adb" ada_program.adb
    gcc-12 -O1 -c ada_program.adb
    gnatbind-12 -shared ada_program
    gcc-12 -c b~ada_program.adb
    folder=$(gcc-12 -print-file-name=adalib)
    gcc-12 ada_program.o b~ada_program.o -L"$folder" -lgnarl-12 -lgnat-12 -lpthread -o native
    echo "inputs=(--library libgnat-12.so.1 --library libgnarl-12.so.1 ada_program.o b~ada_program.o)" >inputs
}
