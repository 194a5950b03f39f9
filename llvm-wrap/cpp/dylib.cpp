// Dylibs of an LLJIT, as far as LLVM's C API does not have them: objects whose names the caller knows, link orders,
// functions that find names, and look-ups that nobody waits for.
#include "internal.h"

using namespace llvm;
using namespace llvm::orc;

namespace {

JITDylib &dylib(void *Raw) { return *static_cast<JITDylib *>(Raw); }

/// A kind travels as the target's flags, which only 32-bit ARM has.
JITSymbolFlags flagsOf(uint8_t Kind, bool Exported, bool Weak) {
  auto Flags = JITSymbolFlags::None;
  if (Exported)
    Flags |= JITSymbolFlags::Exported;
  if (Weak)
    Flags |= JITSymbolFlags::Weak;
  if (Kind == SLABJIT_FUNCTION)
    Flags |= JITSymbolFlags::Callable;
  return JITSymbolFlags(Flags, Kind);
}

/// An object's bytes, which are the caller's.
class Borrowed final : public MemoryBuffer {
public:
  explicit Borrowed(const slabjit_object &O) : Name(O.name, O.name_len), Dropped(O.dropped), Object(O.object) {
    init(O.bytes, O.bytes + O.len, false);
  }
  ~Borrowed() override { Dropped(Object); }
  StringRef getBufferIdentifier() const override { return Name; }
  BufferKind getBufferKind() const override { return MemoryBuffer_Malloc; }

private:
  std::string Name;
  void (*Dropped)(void *);
  void *Object;
};

class Finder final : public DefinitionGenerator {
public:
  explicit Finder(const slabjit_finder &Caller) : Caller(Caller) {}
  ~Finder() override { Caller.dropped(Caller.user); }

  Error tryToGenerate(LookupState &, LookupKind, JITDylib &JD, JITDylibLookupFlags,
                      const SymbolLookupSet &Names) override {
    SymbolMap Found;
    for (auto &[Name, Flags] : Names) {
      uint64_t Address = 0;
      uint8_t Kind = 0;
      int Is = Caller.find(Caller.user, (*Name).data(), (*Name).size(), &Address, &Kind);
      if (Is < 0)
        return make_error<StringError>("a generator failed for '" + *Name + "'", inconvertibleErrorCode());
      if (Is)
        Found[Name] = slabjit::definedAt(ExecutorAddr(Address), flagsOf(Kind, true, false));
    }
    return Found.empty() ? Error::success() : JD.define(absoluteSymbols(std::move(Found)));
  }

private:
  slabjit_finder Caller;
};

} // namespace

extern "C" void slabjit_dylib_set_order(void *Dylib, void *const *Dylibs, size_t N) noexcept {
  JITDylibSearchOrder Order;
  for (auto *Other : ArrayRef<void *>(Dylibs, N))
    // Its own hidden names are seen by itself.
    Order.push_back({&dylib(Other), Other == Dylib ? JITDylibLookupFlags::MatchAllSymbols
                                                   : JITDylibLookupFlags::MatchExportedSymbolsOnly});
  dylib(Dylib).setLinkOrder(std::move(Order), false);
}

extern "C" char *slabjit_dylib_define(void *Dylib, const slabjit_named *Name, uint64_t Address) noexcept {
  auto &JD = dylib(Dylib);
  SymbolMap Symbols;
  Symbols[JD.getExecutionSession().intern(StringRef(Name->name, Name->name_len))] =
      slabjit::definedAt(ExecutorAddr(Address), flagsOf(Name->kind, Name->exported, Name->weak));
  return slabjit::takeText(JD.define(absoluteSymbols(std::move(Symbols))));
}

extern "C" void slabjit_dylib_add_finder(void *Dylib, const slabjit_finder *Caller) noexcept {
  dylib(Dylib).addGenerator(std::make_unique<Finder>(*Caller));
}

extern "C" char *slabjit_dylib_add_objects(slabjit_session *Session, void *Dylib, void *Tracker,
                                           const slabjit_object *Objects, size_t N) noexcept {
  // Dropped on every way out from here.
  std::vector<std::unique_ptr<Borrowed>> Bytes;
  std::vector<MaterializationUnit::Interface> Interfaces(N);
  auto &JD = dylib(Dylib);
  auto &ES = JD.getExecutionSession();
  for (size_t K = 0; K != N; ++K) {
    auto &Object = Objects[K];
    auto &I = Interfaces[K];
    Bytes.push_back(std::make_unique<Borrowed>(Object));
    for (auto &Name : ArrayRef<slabjit_named>(Object.names, Object.n))
      I.SymbolFlags[ES.intern(StringRef(Name.name, Name.name_len))] = flagsOf(Name.kind, Name.exported, Name.weak);
    if (Object.initialiser_len) {
      I.InitSymbol = ES.intern(StringRef(Object.initialiser, Object.initialiser_len));
      I.SymbolFlags[I.InitSymbol] = JITSymbolFlags::MaterializationSideEffectsOnly;
    }
  }
  auto Of = Tracker ? ResourceTrackerSP(static_cast<ResourceTracker *>(Tracker)) : JD.getDefaultResourceTracker();
  auto &Layer = slabjit::lljit(Session).getObjLinkingLayer();
  // No look-up finds some of them only.
  return slabjit::takeText(ES.runSessionLocked([&]() -> Error {
    for (size_t K = 0; K != N; ++K)
      if (auto E = Layer.add(Of, std::move(Bytes[K]), std::move(Interfaces[K])))
        return E;
    return Error::success();
  }));
}

extern "C" void slabjit_dylib_look_up(void *Dylib, const char *Name, size_t Len, int Hidden,
                                      slabjit_looked_up *Done, void *User) noexcept {
  auto &JD = dylib(Dylib);
  auto &ES = JD.getExecutionSession();
  auto Symbol = ES.intern(StringRef(Name, Len));
  auto Tell = [Done, User, Symbol](Expected<SymbolMap> Found) {
    if (Found) {
      auto &Definition = Found->begin()->second;
      return Done(User, slabjit::addressOf(Definition), Definition.getFlags().getTargetFlags(), 0, nullptr, 0);
    }
    auto E = Found.takeError();
    int Missing = E.isA<SymbolsNotFound>();
    auto Text = toString(std::move(E));
    Done(User, 0, 0, Missing, Text.data(), Text.size());
  };
  auto Which = Hidden ? JITDylibLookupFlags::MatchAllSymbols : JITDylibLookupFlags::MatchExportedSymbolsOnly;
  ES.lookup(LookupKind::Static, {{&JD, Which}}, SymbolLookupSet(Symbol), SymbolState::Ready, std::move(Tell),
            NoDependenciesToRegister);
}

extern "C" int slabjit_dylib_defines(void *Dylib, const char *Name, size_t Len) noexcept {
  auto &JD = dylib(Dylib);
  auto &ES = JD.getExecutionSession();
  SymbolLookupSet Symbols(ES.intern(StringRef(Name, Len)), orc::SymbolLookupFlags::WeaklyReferencedSymbol);
  auto Flags =
      ES.lookupFlags(LookupKind::Static, {{&JD, JITDylibLookupFlags::MatchExportedSymbolsOnly}}, std::move(Symbols));
  if (!Flags) {
    consumeError(Flags.takeError());
    return 0;
  }
  return !Flags->empty();
}

extern "C" char *slabjit_dylib_initialise(slabjit_session *Session, void *Dylib) noexcept {
  return slabjit::takeText(slabjit::lljit(Session).initialize(dylib(Dylib)));
}
