// A program of LLVM's: IR in, optimised, compiled and run. Linked with all of LLVM that this needs.
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/Module.h"
#include "llvm/IRReader/IRReader.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/TargetSelect.h"

using namespace llvm;

static const char Text[] = "define i32 @twice(i32 %x) {\n"
                           "  %sum = add i32 %x, %x\n"
                           "  ret i32 %sum\n"
                           "}\n";

extern "C" int answer(int X) {
  InitializeNativeTarget();
  InitializeNativeTargetAsmPrinter();
  auto Context = std::make_unique<LLVMContext>();
  SMDiagnostic Problem;
  auto Module = parseIR(MemoryBufferRef(Text, "twice"), Problem, *Context);
  if (!Module)
    return -1;

  LoopAnalysisManager Loops;
  FunctionAnalysisManager Functions;
  CGSCCAnalysisManager Groups;
  ModuleAnalysisManager Modules;
  PassBuilder Passes;
  Passes.registerModuleAnalyses(Modules);
  Passes.registerCGSCCAnalyses(Groups);
  Passes.registerFunctionAnalyses(Functions);
  Passes.registerLoopAnalyses(Loops);
  Passes.crossRegisterProxies(Loops, Functions, Groups, Modules);
  Passes.buildPerModuleDefaultPipeline(OptimizationLevel::O2).run(*Module, Modules);

  auto Jit = cantFail(orc::LLJITBuilder().create());
  cantFail(Jit->addIRModule(orc::ThreadSafeModule(std::move(Module), std::move(Context))));
  return cantFail(Jit->lookup("twice")).toPtr<int(int)>()(X);
}
