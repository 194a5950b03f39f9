// What is put into LLVM's llvm-jitlink: a linking layer that prepares objects and has our passes, and our memory manager.
// llvm-jitlink.h includes this where edit.py puts it.
#ifndef SLABJIT_SUITE_H
#define SLABJIT_SUITE_H

#include "llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"

namespace slabjit_suite {

class Layer final : public llvm::orc::ObjectLinkingLayer {
public:
  Layer(llvm::orc::ExecutionSession &ES, llvm::jitlink::JITLinkMemoryManager &MemMgr);
  using llvm::orc::ObjectLinkingLayer::emit;
  /// Prepares the object, and links what came of it.
  void emit(std::unique_ptr<llvm::orc::MaterializationResponsibility> R, std::unique_ptr<llvm::MemoryBuffer> O) override;
};

/// `Size`: of the arena, 0 for the default. `Base`: the address that LLVM is told of its start, ~0 for the true one. `NoExec`: nothing
/// of what is linked may run, as with the tool's own manager for that case.
std::unique_ptr<llvm::jitlink::JITLinkMemoryManager> createMemoryManager(uint64_t Size, uint64_t Base, bool NoExec);

} // namespace slabjit_suite

#endif
