// An allocator, a hash map, errors, comptime, threads, and the C library.
const std = @import("std");
extern fn printf(format: [*:0]const u8, ...) c_int;
threadlocal var own: i32 = 5;

fn fib(comptime n: u32) u32 {
    return if (n < 2) n else fib(n - 1) + fib(n - 2);
}
const Failure = error{Odd};
fn half(n: u32) Failure!u32 {
    return if (n % 2 == 1) Failure.Odd else n / 2;
}

export fn main(argc: c_int, argv: [*][*:0]u8) c_int {
    _ = argv;
    var sum: u64 = 0;
    var i: u32 = 0;
    while (i < 1000) : (i += 1) sum += half(i) catch 1;
    own += 1;
    _ = printf("%d %u %llu %d\n", argc, comptime fib(15), sum, own);
    return 0;
}
