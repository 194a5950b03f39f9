// The object layer of an LLJIT. Objects that ORC emits go to the caller, who prepares them, has their memory, and says
// when they are ready; here is ORC's side of a link, and no decision.
#include "internal.h"

#include <deque>
#include <map>
#include <mutex>

using namespace llvm;
using namespace llvm::orc;

/// An object that ORC waits for: the caller's, until it is ready or has failed.
struct slabjit_unit {
  std::unique_ptr<MaterializationResponsibility> Responsibility;
  /// What was not ready when it was looked up.
  SymbolDependenceMap Unready;
  /// Some of that is in no object of this layer.
  bool WaitsForForeign = false;
};

namespace {

/// ORC's side of one link.
class UnitContext final : public jitlink::JITLinkContext {
public:
  UnitContext(const slabjit_orc &Caller, slabjit_unit &Unit, void *Object, ArrayRef<slabjit_definition> Definitions,
          std::unique_ptr<slabjit::Link> Link)
      : JITLinkContext(&Unit.Responsibility->getTargetJITDylib()), Caller(Caller), Unit(Unit), R(*Unit.Responsibility),
        ES(R.getTargetJITDylib().getExecutionSession()), Object(Object), Definitions(Definitions),
        Link(std::move(Link)), Manager(*this->Link) {}

  jitlink::JITLinkMemoryManager &getMemoryManager() override { return Manager; }

  bool shouldAddDefaultTargetPasses(const Triple &) const override { return !Link->IsBare; }

  // The caller has said what is alive (slabjit_graph_bind).
  jitlink::LinkGraphPassFunction getMarkLivePass(const Triple &) const override {
    return [](jitlink::LinkGraph &) { return Error::success(); };
  }

  Error modifyPassConfig(jitlink::LinkGraph &G, jitlink::PassConfiguration &Config) override {
    slabjit::addPasses(*Link, G, Config);
    return Error::success();
  }

  // Before the look-up.
  Error notifyResolved(jitlink::LinkGraph &G) override {
    Pool = slabjit::namePool(G);
    // From here on others may be told these addresses.
    Caller.placed(Object);
    SymbolMap Found;
    auto Define = [&](const slabjit_definition &D, ExecutorAddr At) {
      auto Wanted = R.getSymbols().find(ES.intern(StringRef(D.name, D.name_len)));
      if (Wanted != R.getSymbols().end())
        Found[Wanted->first] = slabjit::definedAt(At, Wanted->second);
    };
    for (auto &[S, Cookie] : Link->Symbols)
      Define(Definitions[Cookie - 1], S->getAddress());
    for (auto &D : Definitions)
      if (D.absolute && D.counts)
        Define(D, ExecutorAddr(D.address));
    return R.notifyResolved(Found);
  }

  void lookup(const LookupMap &Names, std::unique_ptr<jitlink::JITLinkAsyncLookupContinuation> Continuation) override {
    ask(std::make_unique<Lookup>(Lookup{Pool, Names, std::move(Continuation)}));
  }

  void notifyFinalized(jitlink::JITLinkMemoryManager::FinalizedAlloc Alloc) override {
    Alloc.release();
    // A tracker that was removed meanwhile is an error.
    if (auto E = R.withResourceKeyDo([&](ResourceKey Key) { Caller.belongs(Object, Key); }))
      return notifyFailed(std::move(E));
    Caller.linked(Object);
  }

  void notifyFailed(Error E) override {
    auto Text = toString(std::move(E));
    Caller.failed(Object, Text.data(), Text.size());
  }

private:
  /// Names that JITLink waits for. The graph goes with the continuation, and the names after it.
  struct Lookup {
    slabjit::NamePool Pool;
    LookupMap Names;
    std::unique_ptr<jitlink::JITLinkAsyncLookupContinuation> Continuation;
  };

  void ask(std::unique_ptr<Lookup> Asked) {
    Caller.asks(Object);
    JITDylibSearchOrder Order;
    R.getTargetJITDylib().withLinkOrderDo([&](const JITDylibSearchOrder &LinkOrder) { Order = LinkOrder; });
    SymbolLookupSet Wanted;
    for (auto &[Name, Flags] : Asked->Names)
      Wanted.add(ES.intern(slabjit::textOf(Name)), Flags == jitlink::SymbolLookupFlags::RequiredSymbol
                                                       ? orc::SymbolLookupFlags::RequiredSymbol
                                                       : orc::SymbolLookupFlags::WeaklyReferencedSymbol);
    auto GoOn = [this, Asked = std::move(Asked)](Expected<SymbolMap> Found) mutable {
      auto &Continuation = Asked->Continuation;
      if (!Found)
        return Continuation->run(handleErrors(Found.takeError(), [&](std::unique_ptr<SymbolsNotFound> E) -> Error {
          for (auto &Name : E->getSymbols())
            Caller.missing(Object, (*Name).data(), (*Name).size());
          return Error(std::move(E));
        }));
      if (int Told = tellOwners(*Found); Told <= 0)
        return Told ? Continuation->run(slabjit::refused("it refers to an object that failed")) : ask(std::move(Asked));
      jitlink::AsyncLookupResult Result;
      for (auto &[Name, Flags] : Asked->Names) {
        auto At = Found->find(ES.intern(slabjit::textOf(Name)));
        if (At != Found->end())
          Result[Name] = At->second;
      }
      Continuation->run(std::move(Result));
    };
    // The session is locked in the last of these, and what is found has not been materialised yet.
    ES.lookup(LookupKind::Static, std::move(Order), std::move(Wanted), SymbolState::Resolved, std::move(GoOn),
              [this](const SymbolDependenceMap &Unready) { Unit.Unready = Unready; });
  }

  /// Has the caller hold what has these addresses. What it does not know, ORC has to wait for. Returns 0 if they
  /// are to be looked up again, and -1 if it refers to what failed.
  int tellOwners(const SymbolMap &Found) {
    SmallVector<uint64_t, 16> Addresses;
    SmallVector<uint8_t, 16> Known(Found.size());
    for (auto &[Name, Definition] : Found)
      Addresses.push_back(slabjit::addressOf(Definition));
    if (int Told = Caller.refers(Object, Addresses.data(), Known.data(), Addresses.size()); Told <= 0)
      return Told;
    DenseSet<SymbolStringPtr> Ours;
    size_t I = 0;
    for (auto &[Name, Definition] : Found)
      if (Known[I++])
        Ours.insert(Name);
    for (auto &[Dylib, Names] : Unit.Unready)
      for (auto &Name : Names)
        Unit.WaitsForForeign |= !Ours.count(Name);
    return 1;
  }

  const slabjit_orc &Caller;
  slabjit_unit &Unit;
  MaterializationResponsibility &R;
  ExecutionSession &ES;
  void *Object;
  ArrayRef<slabjit_definition> Definitions;
  std::unique_ptr<slabjit::Link> Link;
  slabjit::MemoryManager Manager;
  slabjit::NamePool Pool;
};

class Layer final : public ObjectLayer, private ResourceManager {
public:
  Layer(ExecutionSession &ES, const slabjit_orc &Caller) : ObjectLayer(ES), Caller(Caller) {
    ES.registerResourceManager(*this);
  }
  ~Layer() override { getExecutionSession().deregisterResourceManager(*this); }

  void emit(std::unique_ptr<MaterializationResponsibility> R, std::unique_ptr<MemoryBuffer> Bytes) override {
    auto Unit = std::make_unique<slabjit_unit>();
    Unit->Responsibility = std::move(R);
    auto *U = Unit.release();
    auto Name = Bytes->getBufferIdentifier();
    auto &Dylib = U->Responsibility->getTargetJITDylib();
    slabjit_definition *Definitions = nullptr;
    size_t N = 0;
    auto *Object = Caller.prepare(Caller.user, U, &Dylib, Dylib.getName().data(),
                                  Dylib.getName().size(), Bytes->getBufferStart(),
                                  Bytes->getBufferSize(), Name.data(), Name.size(), &Definitions, &N);
    // The caller has copied the bytes.
    Bytes.reset();
    if (!Object)
      return;
    if (auto E = claim(*U->Responsibility, MutableArrayRef<slabjit_definition>(Definitions, N))) {
      auto Text = toString(std::move(E));
      return Caller.failed(Object, Text.data(), Text.size());
    }
    std::unique_ptr<slabjit_graph> Graph(Caller.bind(Object));
    if (!Graph)
      return;
    auto Link = std::move(Graph->Link);
    // What is looked up has names of the graph, and is there for longer.
    [[maybe_unused]] auto Pool = slabjit::namePool(*Graph->Graph);
    jitlink::link(std::move(Graph->Graph), std::make_unique<UnitContext>(Caller, *U, Object,
                                                                     ArrayRef<slabjit_definition>(Definitions, N),
                                                                     std::move(Link)));
  }

private:
  /// Decides which definitions count: those that ORC asked for, those that nobody else has, and those that nobody else
  /// sees. ORC's interface of an object leaves out what it discarded, and, with 19, takes common symbols for strong.
  Error claim(MaterializationResponsibility &R, MutableArrayRef<slabjit_definition> Definitions) {
    auto &ES = getExecutionSession();
    SymbolFlagsMap Claim;
    for (auto &D : Definitions) {
      auto Name = ES.intern(StringRef(D.name, D.name_len));
      D.counts = !D.exported || R.getSymbols().count(Name);
      if (!D.counts)
        Claim[Name] = JITSymbolFlags::Weak | JITSymbolFlags::Exported |
                      (D.callable ? JITSymbolFlags::Callable : JITSymbolFlags::None);
    }
    if (Claim.empty())
      return Error::success();
    if (auto E = R.defineMaterializing(std::move(Claim)))
      return E;
    for (auto &D : Definitions)
      D.counts = D.counts || R.getSymbols().count(ES.intern(StringRef(D.name, D.name_len)));
    return Error::success();
  }

  // No lock is held.
  Error handleRemoveResources(SLABJIT_RESOURCES_OF ResourceKey Key) override {
    Caller.removed(Caller.user, Key);
    return Error::success();
  }

  // The session is locked.
  void handleTransferResources(SLABJIT_RESOURCES_OF ResourceKey To, ResourceKey From) override {
    Caller.transferred(Caller.user, To, From);
  }

  slabjit_orc Caller;
};

/// Runs tasks on the thread that makes them, unless the caller takes them. A task that an object's link makes would run
/// within it, and chains of objects are long: from a few levels on, tasks wait until the one at hand has ended. So a
/// task must not wait for another, but in slabjit_run_waiting_task.
class Dispatcher final : public TaskDispatcher {
public:
  explicit Dispatcher(const slabjit_orc &Caller) : Caller(Caller) {}

  void dispatch(std::unique_ptr<Task> T) override {
    if (isa<MaterializationTask>(*T) && Caller.dispatch(Caller.user, T.get())) {
      T.release();
      return;
    }
    constexpr unsigned Deepest = 4;
    Waiting.push_back(std::move(T));
    if (Depth == Deepest)
      return;
    ++Depth;
    while (runOne())
      ;
    --Depth;
  }

  void shutdown() override {}

  /// Runs a task that waits for this thread, if one does.
  static bool runOne() {
    if (Waiting.empty())
      return false;
    auto Next = std::move(Waiting.back());
    Waiting.pop_back();
    Next->run();
    return true;
  }

private:
  slabjit_orc Caller;
  static thread_local unsigned Depth;
  static thread_local std::deque<std::unique_ptr<Task>> Waiting;
};

thread_local unsigned Dispatcher::Depth = 0;
thread_local std::deque<std::unique_ptr<Task>> Dispatcher::Waiting;

/// Knows what has initialisers: ORC materialises it for their sake.
class InitialiserPlatform final : public Platform, public ResourceManager {
public:
  Error setupJITDylib(JITDylib &) override { return Error::success(); }
  Error teardownJITDylib(JITDylib &) override { return Error::success(); }
  // The session is locked.
  Error notifyAdding(ResourceTracker &RT, const MaterializationUnit &Unit) override {
    if (auto &Symbol = Unit.getInitializerSymbol()) {
      std::lock_guard<std::mutex> Lock(Mutex);
      auto &Names = Waiting[&RT.getJITDylib()];
      auto &Of = Names.try_emplace(RT.getKeyUnsafe()).first->second;
      Of.add(Symbol, orc::SymbolLookupFlags::WeaklyReferencedSymbol);
      Dylibs[RT.getKeyUnsafe()] = &RT.getJITDylib();
    }
    return Error::success();
  }
  Error notifyRemoving(ResourceTracker &) override { return Error::success(); }

  Error handleRemoveResources(SLABJIT_RESOURCES_OF ResourceKey Key) override {
    std::lock_guard<std::mutex> Lock(Mutex);
    (void)take(Key);
    return Error::success();
  }

  // The session is locked.
  void handleTransferResources(SLABJIT_RESOURCES_OF ResourceKey To, ResourceKey From) override {
    std::lock_guard<std::mutex> Lock(Mutex);
    auto [Dylib, Names] = take(From);
    if (!Dylib)
      return;
    Dylibs[To] = Dylib;
    Waiting[Dylib].try_emplace(To).first->second.append(std::move(Names));
  }

  SymbolLookupSet take(JITDylib &JD) {
    std::lock_guard<std::mutex> Lock(Mutex);
    SymbolLookupSet All;
    auto Found = Waiting.find(&JD);
    if (Found == Waiting.end())
      return All;
    for (auto &[Key, Names] : Found->second) {
      Dylibs.erase(Key);
      All.append(std::move(Names));
    }
    Waiting.erase(Found);
    return All;
  }

private:
  std::pair<JITDylib *, SymbolLookupSet> take(ResourceKey Key) {
    auto Of = Dylibs.find(Key);
    if (Of == Dylibs.end())
      return {};
    auto *Dylib = Of->second;
    Dylibs.erase(Of);
    auto All = Waiting.find(Dylib);
    auto Found = All->second.find(Key);
    auto Names = std::move(Found->second);
    All->second.erase(Found);
    if (All->second.empty())
      Waiting.erase(All);
    return {Dylib, std::move(Names)};
  }

  std::mutex Mutex;
  /// By resource key, each of which is one dylib's.
  DenseMap<JITDylib *, std::map<ResourceKey, SymbolLookupSet>> Waiting;
  DenseMap<ResourceKey, JITDylib *> Dylibs;
};

/// Initialises dylibs: all that have something to run are linked, then the caller runs it.
class Support final : public LLJIT::PlatformSupport {
public:
  Support(ExecutionSession &ES, InitialiserPlatform &Known, const slabjit_orc &Caller)
      : ES(ES), Known(Known), Caller(Caller) {}

  Error initialize(JITDylib &JD) override {
    auto Order = JD.getDFSLinkOrder();
    if (!Order)
      return Order.takeError();
    // Dylibs that others are linked against come first.
    for (auto &Dylib : llvm::reverse(*Order)) {
      auto Symbols = Known.take(*Dylib);
      if (!Symbols.empty()) {
        auto Linked = ES.lookup({{Dylib.get(), JITDylibLookupFlags::MatchAllSymbols}}, std::move(Symbols));
        if (!Linked)
          return Linked.takeError();
      }
      if (auto E = said(Caller.initialise(Caller.user, Dylib.get())))
        return E;
    }
    return Error::success();
  }

  Error deinitialize(JITDylib &JD) override { return said(Caller.deinitialise(Caller.user, &JD)); }

private:
  static Error said(char *Text) {
    if (!Text)
      return Error::success();
    auto E = make_error<StringError>(Text, inconvertibleErrorCode());
    slabjit_string_free(Text);
    return E;
  }

  ExecutionSession &ES;
  InitialiserPlatform &Known;
  slabjit_orc Caller;
};

} // namespace

std::unique_ptr<ObjectLayer> slabjit::makeLayer(ExecutionSession &ES, const slabjit_orc &Caller) {
  return std::make_unique<Layer>(ES, Caller);
}

std::unique_ptr<TaskDispatcher> slabjit::makeDispatcher(const slabjit_orc &Caller) {
  return std::make_unique<Dispatcher>(Caller);
}

void slabjit::setUpPlatform(LLJIT &JIT, const slabjit_orc &Caller) {
  auto Known = std::make_unique<InitialiserPlatform>();
  auto &ES = JIT.getExecutionSession();
  JIT.setPlatformSupport(std::make_unique<Support>(ES, *Known, Caller));
  // Both end with the session.
  ES.registerResourceManager(*Known);
  ES.setPlatform(std::move(Known));
}

extern "C" char *slabjit_string_copy(const char *Text, size_t Len) noexcept {
  return slabjit::copyText(StringRef(Text, Len));
}

extern "C" void slabjit_task_run(void *Raw) noexcept {
  std::unique_ptr<Task> T(static_cast<Task *>(Raw));
  T->run();
}

extern "C" int slabjit_run_waiting_task(void) noexcept { return Dispatcher::runOne(); }

extern "C" char *slabjit_unit_ready(slabjit_unit *Unit, int Wait) noexcept {
  std::unique_ptr<slabjit_unit> Owned(Unit);
  auto &R = *Unit->Responsibility;
  auto E = slabjit::notifyEmitted(R, Wait ? std::move(Unit->Unready) : SymbolDependenceMap());
  if (!E)
    return nullptr;
  R.failMaterialization();
  return slabjit::takeText(std::move(E));
}

extern "C" int slabjit_unit_waits_for_foreign(const slabjit_unit *Unit) noexcept { return Unit->WaitsForForeign; }

extern "C" int slabjit_unit_key(const slabjit_unit *Unit, void (*Told)(void *, uintptr_t),
                                void *User) noexcept {
  auto E = Unit->Responsibility->withResourceKeyDo([&](ResourceKey Key) { Told(User, Key); });
  bool IsRemoved = bool(E);
  consumeError(std::move(E));
  return !IsRemoved;
}

extern "C" void slabjit_unit_fail(slabjit_unit *Unit, const char *Text, size_t Len) noexcept {
  std::unique_ptr<slabjit_unit> Owned(Unit);
  auto &R = *Unit->Responsibility;
  // Whoever asked is told names only.
  R.getTargetJITDylib().getExecutionSession().reportError(
      make_error<StringError>(StringRef(Text, Len), inconvertibleErrorCode()));
  R.failMaterialization();
}
