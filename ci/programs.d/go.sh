packages=(golang-1.19-go)
build() {
    local go=/usr/lib/go-1.19/bin/go
    export GOCACHE=$PWD/cache GOFLAGS=-mod=mod GO111MODULE=off CGO_ENABLED=1
    cp "$sources/go.go" .
    "$go" build -buildmode=c-archive -o libgo.a go.go
    cat >driver.c <<'C'
#include <stdio.h>
#include "libgo.h"
int main(void) {
    int total = Work(100);
    fflush(stdout);
    printf("%d\n", total);
    return total != 328350;
}
C
    gcc -O1 -c driver.c -o driver.o
    gcc driver.o libgo.a -lpthread -o native
    echo "inputs=(driver.o libgo.a)" >inputs
}
