; Function addresses as arguments, one local and one external (llvm#173269).
;# compile: -relocation-model=pic
;# with: runtime.c
;# call: run_saxpy() = 25
; ModuleID = 'LLVMDialectModule'
source_filename = "LLVMDialectModule"

declare i32 @runtime_register(ptr, ptr, ptr)

declare void @runtime_set_error(ptr, ptr)

define void @saxpy(float %0, ptr %1, ptr %2, i64 %3, i64 %4, i64 %5, ptr %6, ptr %7, i64 %8, i64 %9, i64 %10) {
  %12 = insertvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } poison, ptr %6, 0
  %13 = insertvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %12, ptr %7, 1
  %14 = insertvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %13, i64 %8, 2
  %15 = insertvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %14, i64 %9, 3, 0
  %16 = insertvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %15, i64 %10, 4, 0
  %17 = insertvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } poison, ptr %1, 0
  %18 = insertvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %17, ptr %2, 1
  %19 = insertvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %18, i64 %3, 2
  %20 = insertvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %19, i64 %4, 3, 0
  %21 = insertvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %20, i64 %5, 4, 0
  %22 = extractvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %21, 3
  %23 = alloca [1 x i64], i64 1, align 8
  store [1 x i64] %22, ptr %23, align 4
  %24 = getelementptr [1 x i64], ptr %23, i32 0, i64 0
  %25 = load i64, ptr %24, align 4
  br label %26

26:                                               ; preds = %29, %11
  %27 = phi i64 [ %40, %29 ], [ 0, %11 ]
  %28 = icmp slt i64 %27, %25
  br i1 %28, label %29, label %41

29:                                               ; preds = %26
  %30 = extractvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %21, 1
  %31 = getelementptr inbounds nuw float, ptr %30, i64 %27
  %32 = load float, ptr %31, align 4
  %33 = extractvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %16, 1
  %34 = getelementptr inbounds nuw float, ptr %33, i64 %27
  %35 = load float, ptr %34, align 4
  %36 = fmul float %0, %32
  %37 = fadd float %36, %35
  %38 = extractvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %16, 1
  %39 = getelementptr inbounds nuw float, ptr %38, i64 %27
  store float %37, ptr %39, align 4
  %40 = add i64 %27, 1
  br label %26

41:                                               ; preds = %26
  ret void
}

define void @_mlir_ciface_saxpy(float %0, ptr %1, ptr %2) {
  %4 = load { ptr, ptr, i64, [1 x i64], [1 x i64] }, ptr %1, align 8
  %5 = extractvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %4, 0
  %6 = extractvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %4, 1
  %7 = extractvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %4, 2
  %8 = extractvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %4, 3, 0
  %9 = extractvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %4, 4, 0
  %10 = load { ptr, ptr, i64, [1 x i64], [1 x i64] }, ptr %2, align 8
  %11 = extractvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %10, 0
  %12 = extractvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %10, 1
  %13 = extractvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %10, 2
  %14 = extractvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %10, 3, 0
  %15 = extractvalue { ptr, ptr, i64, [1 x i64], [1 x i64] } %10, 4, 0
  call void @saxpy(float %0, ptr %5, ptr %6, i64 %7, i64 %8, i64 %9, ptr %11, ptr %12, i64 %13, i64 %14, i64 %15)
  ret void
}

define i32 @kernel_init(ptr %0) {
  %2 = call i32 @runtime_register(ptr %0, ptr @saxpy, ptr @runtime_set_error)
  ret i32 %2
}

!llvm.module.flags = !{!0}

!0 = !{i32 2, !"Debug Info Version", i32 3}
