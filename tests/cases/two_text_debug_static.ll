; The shape of CuTe DSL 4.4.1 and 4.4.2: two sections named .text, AX + A (not position independent), and a .fini_array.
;# image: none (depends on the load address)
;# compile: -relocation-model=static -code-model=large
;# oracle[aarch64]: none (ld -shared refuses R_AARCH64_MOVW_UABS_G0_NC, "can not be used when making a shared object")
;# with: runtime.c
;# call: entry(0, 0, 1, 0) = 42
;# trace: 1 | 7
; Independent minimal reproducer of the #3162 layout: function-pointer constants deliberately put in section ".text"
; (nothing NVIDIA in it). With -relocation-model=pic llc emits a 2nd ".text" with flags WA; with static: flags A.
source_filename = "duptext"
@fp_local = private constant ptr @helper, section ".text"
@fp_ext   = private constant ptr @rt_set_error, section ".text"
@state = internal global i64 0
@llvm.global_dtors = appending global [1 x { i32, ptr, ptr }] [{ i32, ptr, ptr } { i32 65535, ptr @unload, ptr null }]
declare void @rt_set_error(ptr, ptr)
declare i32 @rt_init_once(ptr, ptr, ptr)
declare void @rt_unload_once(ptr)
define i32 @helper(i32 %x) !dbg !4 { %r = add i32 %x, 41, !dbg !7
 ret i32 %r }
define i32 @entry(ptr %self, ptr %args, i32 %n, ptr %ret) {
  %f = load volatile ptr, ptr @fp_local
  %e = load volatile ptr, ptr @fp_ext
  %r = call i32 @rt_init_once(ptr @state, ptr %f, ptr %e)
  %v = call i32 %f(i32 %n)
  %s = add i32 %v, %r
  ret i32 %s
}
define internal void @unload() { call void @rt_unload_once(ptr @state)
 ret void }
!llvm.dbg.cu = !{!0}
!llvm.module.flags = !{!2, !3}
!0 = distinct !DICompileUnit(language: DW_LANG_C99, file: !1, producer: "x", isOptimized: true, runtimeVersion: 0, emissionKind: FullDebug)
!1 = !DIFile(filename: "duptext.c", directory: "/")
!2 = !{i32 2, !"Debug Info Version", i32 3}
!3 = !{i32 7, !"Dwarf Version", i32 5}
!4 = distinct !DISubprogram(name: "helper", scope: !1, file: !1, line: 1, type: !5, unit: !0, spFlags: DISPFlagDefinition)
!5 = !DISubroutineType(types: !6)
!6 = !{null}
!7 = !DILocation(line: 2, scope: !4)
