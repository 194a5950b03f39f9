// An object with nothing in it loads.
//# compile[clang-19]: -Wno-empty-translation-unit
//# trace: |
