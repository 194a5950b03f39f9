packages=(python3-venv)
build() {
    local pip zig=${SLABJIT_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slabjit}/zig
    if [ ! -x "$zig/ziglang/zig" ]; then
        pip=$(cd "$sources/../.." && . ci/lib.sh && python_pip)
        $pip install --quiet --no-deps --target "$zig" ziglang==0.13.0 || { echo "PyPI's ziglang 0.13.0 cannot be had" >unavailable; return 1; }
    fi
    cp "$sources/zig.zig" .
    "$zig/ziglang/zig" build-obj -OReleaseSafe -fPIC -lc --cache-dir cache --global-cache-dir cache -fcompiler-rt zig.zig -femit-bin=driver.o
    gcc driver.o -lm -o native
    echo "inputs=(driver.o)" >inputs
}
