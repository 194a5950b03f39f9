// What LLVM's C API does not reach, or not in all versions: linking layers with a memory manager of the caller's
// choice, objects for MCJIT, look-ups of many names.
#include "llvm/Config/llvm-config.h"

#include "llvm-c/Error.h"
#include "llvm-c/ExecutionEngine.h"
#include "llvm-c/LLJIT.h"
#include "llvm-c/Orc.h"
#include "llvm-c/Transforms/PassBuilder.h"
#include "llvm/ExecutionEngine/ExecutionEngine.h"
#include "llvm/ExecutionEngine/JITLink/EHFrameSupport.h"
#include "llvm/ExecutionEngine/JITLink/JITLinkMemoryManager.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/ExecutionEngine/Orc/MapperJITLinkMemoryManager.h"
#include "llvm/ExecutionEngine/Orc/MemoryMapper.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"
#include "llvm/IRReader/IRReader.h"
#include "llvm/Object/ObjectFile.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Target/TargetMachine.h"
#include <chrono>
#if LLVM_VERSION_MAJOR == 20
#include "llvm/ExecutionEngine/Orc/EHFrameRegistrationPlugin.h"
#endif
#if LLVM_VERSION_MAJOR >= 17 && LLVM_VERSION_MAJOR < 21
#include "llvm/ExecutionEngine/Orc/EPCEHFrameRegistrar.h"
#endif

using namespace llvm;
using namespace llvm::orc;

/// What LLVM keeps to itself (OrcV2CBindings.cpp).
static ExecutionSession &unwrapSession(LLVMOrcExecutionSessionRef Session) {
  return *reinterpret_cast<ExecutionSession *>(Session);
}

/// Unwind tables are registered as LLJIT's own layer has them (LLJIT.cpp). From 21 on its platform adds the plugin to
/// any ObjectLinkingLayer; up to 16 LLJIT has no such layer for ELF on x86-64, and the plugin is what it gives those
/// for Mach-O.
static Error registerFrames([[maybe_unused]] ExecutionSession &ES, [[maybe_unused]] ObjectLinkingLayer &Layer) {
#if LLVM_VERSION_MAJOR < 17
  Layer.addPlugin(
      std::make_unique<EHFrameRegistrationPlugin>(ES, std::make_unique<jitlink::InProcessEHFrameRegistrar>()));
#elif LLVM_VERSION_MAJOR < 21
  auto Registrar = EPCEHFrameRegistrar::Create(ES);
  if (!Registrar)
    return Registrar.takeError();
  Layer.addPlugin(std::make_unique<EHFrameRegistrationPlugin>(ES, std::move(*Registrar)));
#endif
  return Error::success();
}

static LLVMErrorRef makeLayer(LLVMOrcExecutionSessionRef Session,
                              Expected<std::unique_ptr<jitlink::JITLinkMemoryManager>> Memory,
                              LLVMOrcObjectLayerRef *Out) {
  if (!Memory)
    return wrap(Memory.takeError());
  auto &ES = unwrapSession(Session);
  auto Layer = std::make_unique<ObjectLinkingLayer>(ES, std::move(*Memory));
  if (auto E = registerFrames(ES, *Layer))
    return wrap(std::move(E));
  // ObjectLinkingLayer has several bases.
  *Out = reinterpret_cast<LLVMOrcObjectLayerRef>(static_cast<ObjectLayer *>(Layer.release()));
  return LLVMErrorSuccess;
}

#define EXPORTED extern "C" __attribute__((visibility("default")))

/// A layer with JITLink and its in-process memory manager. The caller owns it, and the error.
EXPORTED LLVMErrorRef slabjit_stock_in_process_layer(LLVMOrcExecutionSessionRef Session,
                                                     LLVMOrcObjectLayerRef *Out) noexcept {
  return makeLayer(Session, jitlink::InProcessMemoryManager::Create(), Out);
}

/// A layer with JITLink and the memory manager that maps through a MemoryMapper. The caller owns it, and the error.
EXPORTED LLVMErrorRef slabjit_stock_mapper_layer(LLVMOrcExecutionSessionRef Session,
                                                 LLVMOrcObjectLayerRef *Out) noexcept {
#if LLVM_VERSION_MAJOR < 16
  return makeLayer(Session, MapperJITLinkMemoryManager::CreateWithMapper<InProcessMemoryMapper>(), Out);
#else
  // As much at once as llvm-jitlink reserves.
  constexpr size_t Granularity = size_t(1) << 30;
  return makeLayer(Session, MapperJITLinkMemoryManager::CreateWithMapper<InProcessMemoryMapper>(Granularity), Out);
#endif
}

/// Runs the initialisers of a JITDylib, or, with `Down`, its finalisers, by the LLJIT's platform. The caller owns the
/// error.
EXPORTED LLVMErrorRef slabjit_stock_initialize(LLVMOrcLLJITRef Jit, LLVMOrcJITDylibRef Dylib, int Down) noexcept {
  auto &JIT = *reinterpret_cast<LLJIT *>(Jit);
  auto &JD = *reinterpret_cast<JITDylib *>(Dylib);
  return wrap(Down ? JIT.deinitialize(JD) : JIT.initialize(JD));
}

/// Gives MCJIT an object in place of a module to compile. The bytes are not copied, and stay as long as the engine. The
/// caller owns the error.
EXPORTED LLVMErrorRef slabjit_stock_mcjit_add_object(LLVMExecutionEngineRef Engine, const char *Bytes,
                                                     size_t Size) noexcept {
  auto Buffer = MemoryBuffer::getMemBuffer(StringRef(Bytes, Size), "object", /*RequiresNullTerminator=*/false);
  auto Object = object::ObjectFile::createObjectFile(Buffer->getMemBufferRef());
  if (!Object)
    return wrap(Object.takeError());
  unwrap(Engine)->addObjectFile(object::OwningBinary<object::ObjectFile>(std::move(*Object), std::move(Buffer)));
  return LLVMErrorSuccess;
}

#if LLVM_VERSION_MAJOR < 17
static uint64_t addressOf(const JITEvaluatedSymbol &Found) { return Found.getAddress(); }
#else
static uint64_t addressOf(const ExecutorSymbolDef &Found) { return Found.getAddress().getValue(); }
#endif

/// Looks N names of a JITDylib up at once: what defines them is linked together. The caller owns the error.
EXPORTED LLVMErrorRef slabjit_stock_look_up_all(LLVMOrcExecutionSessionRef Session, LLVMOrcJITDylibRef Dylib,
                                                const char *const *Names, size_t N, uint64_t *Addresses) noexcept {
  auto &ES = unwrapSession(Session);
  std::vector<SymbolStringPtr> Wanted;
  for (size_t I = 0; I != N; ++I)
    Wanted.push_back(ES.intern(Names[I]));
  auto Found = ES.lookup(makeJITDylibSearchOrder(reinterpret_cast<JITDylib *>(Dylib)), SymbolLookupSet(Wanted));
  if (!Found)
    return wrap(Found.takeError());
  for (size_t I = 0; I != N; ++I)
    Addresses[I] = addressOf((*Found)[Wanted[I]]);
  return LLVMErrorSuccess;
}

/// One object's graph, as it is before any pass.
static Expected<std::unique_ptr<jitlink::LinkGraph>> makeGraph(StringRef Bytes) {
  MemoryBufferRef Buffer(Bytes, "object");
#if LLVM_VERSION_MAJOR < 20
  return jitlink::createLinkGraphFromObject(Buffer);
#else
  return jitlink::createLinkGraphFromObject(Buffer, std::make_shared<SymbolStringPool>());
#endif
}

/// What JITLink's in-process memory manager takes for each of `Count` objects, with `Live` more: seconds to give memory
/// and to make it final, and to take it back. Graphs are made outside of that. The caller owns the error.
EXPORTED LLVMErrorRef slabjit_stock_manager_time(const char *Bytes, size_t Size, size_t Live, size_t Count,
                                                 double Seconds[2]) noexcept {
  auto Manager = cantFail(jitlink::InProcessMemoryManager::Create());
  using Clock = std::chrono::steady_clock;
  Clock::duration Times[2] = {};
  std::vector<jitlink::JITLinkMemoryManager::FinalizedAlloc> Allocs;
  for (size_t I = 0; I != Live + Count; ++I) {
    auto Graph = makeGraph(StringRef(Bytes, Size));
    if (!Graph)
      return wrap(Graph.takeError());
    auto Start = Clock::now();
    auto InFlight = Manager->allocate(nullptr, **Graph);
    if (!InFlight)
      return wrap(InFlight.takeError());
    auto Final = (*InFlight)->finalize();
    if (!Final)
      return wrap(Final.takeError());
    if (I >= Live)
      Times[0] += Clock::now() - Start;
    Allocs.push_back(std::move(*Final));
  }
  auto TakeBack = [&] {
    auto E = Manager->deallocate(std::move(Allocs.back()));
    Allocs.pop_back();
    return E;
  };
  auto Start = Clock::now();
  for (size_t I = 0; I != Count; ++I)
    if (auto E = TakeBack())
      return wrap(std::move(E));
  Times[1] = Clock::now() - Start;
  while (!Allocs.empty())
    if (auto E = TakeBack())
      return wrap(std::move(E));
  for (size_t I = 0; I != 2; ++I)
    Seconds[I] = std::chrono::duration<double>(Times[I]).count() / Count;
  return LLVMErrorSuccess;
}

/// An LLLazyJIT with a module of IR. Each of its functions is compiled when it is first called, with these passes. The
/// caller owns it, and the error; LLVM's targets are registered.
EXPORTED LLVMErrorRef slabjit_stock_lazy(const char *Text, size_t Size, const char *Passes,
                                         LLVMOrcLLJITRef *Out) noexcept {
  auto Context = std::make_unique<LLVMContext>();
  SMDiagnostic Problem;
  // The parser wants a zero behind it.
  auto Buffer = MemoryBuffer::getMemBufferCopy(StringRef(Text, Size), "module");
  auto Module = parseIR(*Buffer, Problem, *Context);
  if (!Module)
    return wrap(createStringError(inconvertibleErrorCode(), Problem.getMessage()));
  auto Host = JITTargetMachineBuilder::detectHost();
  if (!Host)
    return wrap(Host.takeError());
  auto Machine = Host->createTargetMachine();
  if (!Machine)
    return wrap(Machine.takeError());
  auto Jit = LLLazyJITBuilder().setJITTargetMachineBuilder(std::move(*Host)).create();
  if (!Jit)
    return wrap(Jit.takeError());
  auto Optimise = [Machine = std::shared_ptr<TargetMachine>(std::move(*Machine)),
                   Pipeline = std::string(Passes)](ThreadSafeModule M, const MaterializationResponsibility &) {
    auto E = M.withModuleDo([&](llvm::Module &Part) {
      auto *Options = LLVMCreatePassBuilderOptions();
      auto *Failure = LLVMRunPasses(wrap(&Part), Pipeline.c_str(),
                                    reinterpret_cast<LLVMTargetMachineRef>(Machine.get()), Options);
      LLVMDisposePassBuilderOptions(Options);
      return unwrap(Failure);
    });
    return E ? Expected<ThreadSafeModule>(std::move(E)) : Expected<ThreadSafeModule>(std::move(M));
  };
  (*Jit)->getIRTransformLayer().setTransform(std::move(Optimise));
  Module->setDataLayout((*Jit)->getDataLayout());
  if (auto E = (*Jit)->addLazyIRModule(ThreadSafeModule(std::move(Module), std::move(Context))))
    return wrap(std::move(E));
  *Out = reinterpret_cast<LLVMOrcLLJITRef>(static_cast<LLJIT *>(Jit->release()));
  return LLVMErrorSuccess;
}
