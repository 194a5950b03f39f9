packages=(libprotobuf-dev protobuf-compiler zlib1g-dev)
build() {
    protoc --cpp_out=. --proto_path="$sources" "$sources/protobuf.proto"
    g++ -O1 -c -I. protobuf.pb.cc -o protobuf.pb.o
    g++ -O1 -c -I. "$sources/protobuf.cc" -o driver.o
    g++ driver.o protobuf.pb.o -l:libprotobuf.a -lz -lpthread -o native
    echo "inputs=(--library libstdc++.so.6 --library libz.so.1 driver.o protobuf.pb.o '$(library_file libprotobuf.a)')" >inputs
}
