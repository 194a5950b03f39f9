// What LLVM's C API does not say of modules.
#include "internal.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/Module.h>

using namespace llvm;

extern "C" void slabjit_module_set_shared(LLVMModuleRef M) noexcept {
  Module &Mod = *unwrap(M);
  auto *Zero = ConstantAsMetadata::get(ConstantInt::get(Type::getInt32Ty(Mod.getContext()), 0));
  // Replaces what is there; LLVM's own setters add a second flag of the name, which the verifier refuses.
  Mod.setModuleFlag(Module::Max, "PIE Level", Zero);
}
