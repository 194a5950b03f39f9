/* Prints what llvm-profdata reads in the profile of this very program. */
#include <stdio.h>
#include <stdlib.h>

int classify(int), sum(int);
int __llvm_profile_write_file(void);
const char *__llvm_profile_get_filename(void);

int main(void) {
    int total = 0;
    for (int i = 0; i < 10; i++) total += classify(i) + sum(i);
    printf("%d\n", total);
    fflush(stdout);
    if (__llvm_profile_write_file()) return 1;
    setenv("PROFILE", __llvm_profile_get_filename(), 1);
    return system("llvm-profdata-19 merge -o merged $PROFILE && llvm-profdata-19 show --all-functions --counts merged") != 0;
}
