packages=(gnat-12)
build() {
    local folder inputs
    folder=$(dirname "$(gcc-12 -print-file-name=adalib/libgnat_pic.a)")
    cp "$sources/ada.adb" ada_program.adb
    gcc-12 -O1 -c ada_program.adb
    gnatbind-12 ada_program
    gcc-12 -c b~ada_program.adb
    inputs=(ada_program.o b~ada_program.o "$folder/libgnarl_pic.a" "$folder/libgnat_pic.a")
    gcc-12 "${inputs[@]}" -lpthread -o native
    echo "inputs=(${inputs[*]})" >inputs
}
