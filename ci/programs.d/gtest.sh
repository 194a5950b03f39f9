# googletest's own tests, from the sources that Debian's package has. One object and one run each.
packages=(googletest)
cases=()
tests=(
    googletest-filepath-test googletest-listener-test googletest-message-test googletest-options-test googletest-port-test
    googletest-printers-test googletest-test-part-test gtest-unittest-api_test gtest_environment_test gtest_no_test_unittest
    gtest_pred_impl_unittest gtest_prod_test gtest_repeat_test gtest_sole_header_test gtest_stress_test gtest_unittest
)
limit=300
# Each is a program of its own: `native` and the inputs are chosen by the first argument.
cases=("${tests[@]}")
# Threads of one of them write in any order.
normalize() { sed -E 's/\([0-9]+ ms( total)?\)//; s/0x[0-9a-f]+/0x…/g; s/(seed|Random).*[0-9]+/\1/' | sort; }
build() {
    local root=/usr/src/googletest/googletest test main
    export flags="-O1 -w ${images:+-fPIC} -I$root -I$root/include"
    # shellcheck disable=SC2086 # a list of words
    g++ $flags -c $root/src/gtest-all.cc -o gtest-all.o
    # shellcheck disable=SC2086
    g++ $flags -c $root/src/gtest_main.cc -o gtest_main.o
    mkdir -p programs objects
    # One of them looks for its own name in argv[0]: no ending.
    printf '%s\n' "${tests[@]}" production | xargs -P "$(nproc)" -I{} sh -c "g++ $flags -c $root/test/{}.cc -o objects/{}"
    for test in "${tests[@]}"; do
        main=gtest_main.o
        if grep -q 'int main(' "$root/test/$test.cc"; then main=; fi
        if [ "$test" = gtest_prod_test ]; then main="$main objects/production"; fi
        if [ "$test" = gtest_sole_header_test ]; then main="gtest_main.o"; fi
        echo "objects/$test gtest-all.o $main" >"$test.inputs"
        # shellcheck disable=SC2046
        g++ $(cat "$test.inputs") -lpthread -o "programs/$test" || return
    done
    printf '#!/bin/sh\ntest=$1\nshift\nexec "./programs/$test" "$@"\n' >native
    chmod +x native
    # What `slabjit run` gets is that of the case at hand.
    # shellcheck disable=SC2016
    echo 'inputs_of() { read -ra inputs <"$1.inputs"; inputs=(--library libstdc++.so.6 --library libm.so.6 "${inputs[@]}"); }' >inputs
}
