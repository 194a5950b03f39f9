// The one place with LLVM version conditions. 19 and 22 are tested; 20, 21 and 23 are written for and untested.
#ifndef SLABJIT_VERSION_H
#define SLABJIT_VERSION_H

#include "llvm/Config/llvm-config.h"

#if LLVM_VERSION_MAJOR < 19
#error "slabjit-llvm-wrap needs LLVM 19 or newer"
#endif

#include "llvm/ExecutionEngine/JITLink/JITLink.h"
#include "llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h"
#include "llvm/ExecutionEngine/Orc/Core.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"

namespace slabjit {

// JITLinkMemoryManager::deallocate takes the manager's tokens by value everywhere; only names of graph parts differ.
#if LLVM_VERSION_MAJOR >= 20 // Symbol::getName() became a SymbolStringPtr.
inline llvm::StringRef symbolName(const llvm::jitlink::Symbol &S) {
  return S.hasName() ? *S.getName() : llvm::StringRef();
}
inline void setSymbolName(llvm::jitlink::LinkGraph &G, llvm::jitlink::Symbol &S, llvm::StringRef Name) {
  S.setName(G.intern(Name));
}
inline llvm::Expected<std::unique_ptr<llvm::jitlink::LinkGraph>>
createLinkGraph(llvm::MemoryBufferRef Object, llvm::orc::ExecutionSession &ES) {
  return llvm::jitlink::createLinkGraphFromObject(Object, ES.getSymbolStringPool());
}
#else
inline llvm::StringRef symbolName(const llvm::jitlink::Symbol &S) { return S.getName(); }
inline void setSymbolName(llvm::jitlink::LinkGraph &G, llvm::jitlink::Symbol &S, llvm::StringRef Name) {
  auto Copy = G.allocateContent(Name);
  S.setName({Copy.data(), Copy.size()});
}
inline llvm::Expected<std::unique_ptr<llvm::jitlink::LinkGraph>>
createLinkGraph(llvm::MemoryBufferRef Object, llvm::orc::ExecutionSession &) {
  return llvm::jitlink::createLinkGraphFromObject(Object);
}
#endif

// Kinds of edges that later versions have.
#if LLVM_VERSION_MAJOR >= 22
#define SLABJIT_IF_LLVM22(...) __VA_ARGS__
#else
#define SLABJIT_IF_LLVM22(...)
#endif

// LLJITBuilder's layer creator lost its Triple parameter in 21.
template <typename Make> auto layerCreator(Make M) {
#if LLVM_VERSION_MAJOR >= 23
  return [M](llvm::orc::ExecutionSession &ES, llvm::jitlink::JITLinkMemoryManager &)
             -> llvm::Expected<std::unique_ptr<llvm::orc::ObjectLayer>> { return M(ES); };
#elif LLVM_VERSION_MAJOR >= 21
  return [M](llvm::orc::ExecutionSession &ES)
             -> llvm::Expected<std::unique_ptr<llvm::orc::ObjectLayer>> { return M(ES); };
#else
  return [M](llvm::orc::ExecutionSession &ES, const llvm::Triple &)
             -> llvm::Expected<std::unique_ptr<llvm::orc::ObjectLayer>> { return M(ES); };
#endif
}

} // namespace slabjit

#endif
