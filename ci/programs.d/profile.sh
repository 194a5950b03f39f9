# Counters, names and values of several objects: linker sets, which compiler-rt's profile runtime reads.
packages=(libclang-rt-19-dev llvm-19)
build() {
    local runtime
    runtime=$(dpkg -L libclang-rt-19-dev | grep "/libclang_rt.profile-$(uname -m).a$")
    echo 'int classify(int x) { return x > 5 ? x * 2 : -x; }' >first.c
    echo 'int never(void) { return 1; } int sum(int x) { int s = 0; while (x--) s += x; return s; }' >second.c
    cp "$sources/profile.c" driver.c
    for file in driver first second; do clang-19 -O1 -fPIC -fprofile-instr-generate -fcoverage-mapping -c "$file.c"; done
    as "$sources/profile.s" -o profile.o
    clang-19 -fprofile-instr-generate driver.o first.o second.o -o native
    echo "inputs=(driver.o first.o second.o profile.o '$runtime')" >inputs
}
