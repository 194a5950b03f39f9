__thread int elsewhere = 41;
__thread int defined_twice __attribute__((weak)) = 1;
