# The crate of this name: a slice whose elements are in several objects of a Rust static library, all of which are given.
packages=()
build() {
    local archive=$PWD/rust/release/libwords.a
    cp -r "$sources/linkme" crate
    if ! CARGO_TARGET_DIR=$PWD/rust cargo build --quiet --release --manifest-path crate/Cargo.toml; then
        echo "the crate linkme cannot be had" >unavailable
        return 1
    fi
    mkdir objects
    (cd objects && ar t "$archive" | grep '^words-' | xargs ar x "$archive")
    gcc objects/*.o "$archive" -lpthread -ldl -lm -o native
    echo "inputs=(objects/*.o '$archive')" >inputs
}
