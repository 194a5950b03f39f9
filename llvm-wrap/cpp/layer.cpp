// LinkGraphs: built from bytes, bound to the caller's decisions, added to ORC with an interface of our own.
#include "internal.h"

#include "llvm/Support/MemoryBuffer.h"

using namespace llvm;
using namespace llvm::jitlink;
using namespace llvm::orc;

namespace {

// ObjectLinkingLayer::add would scan the graph for its interface; ours is one key and what other objects of the same
// batch import.
class GraphUnit final : public MaterializationUnit {
public:
  GraphUnit(Interface I, slabjit_graph &Source)
      : MaterializationUnit(std::move(I)), Session(*Source.Session), Graph(std::move(Source.Graph)),
        Link(std::move(Source.Link)) {}

  StringRef getName() const override { return Graph ? StringRef(Graph->getName()) : StringRef("slabjit graph"); }

private:
  void materialize(std::unique_ptr<MaterializationResponsibility> MR) override {
    Session.Links.insert(MR.get(), Graph.get(), std::move(Link));
    Session.Layer->emit(std::move(MR), std::move(Graph));
  }
  // Every name is unique in its JITDylib, so no definition is ever overridden.
  void discard(const JITDylib &, const SymbolStringPtr &) override {}

  slabjit_session &Session;
  std::unique_ptr<LinkGraph> Graph;
  std::unique_ptr<slabjit::Link> Link;
};

void bindDefined(slabjit_graph &G, Symbol &S, SmallVectorImpl<Symbol *> &Discarded) {
  auto Name = slabjit::symbolName(S);
  slabjit_decision D{};
  G.Session->Callbacks.defined(G.Link->Object, Name.data(), Name.size(), &D);
  if (D.verdict == SLABJIT_DISCARD)
    return Discarded.push_back(&S);
  S.setLinkage(Linkage::Strong);
  if (D.verdict == SLABJIT_RENAME) {
    StringRef Export(D.name, D.name_len);
    slabjit::setSymbolName(*G.Graph, S, Export);
    S.setScope(Scope::Default);
    G.Exports.push_back({Export.str(), S.isCallable()});
  } else {
    S.setScope(Scope::Local);
    if (D.verdict == SLABJIT_DROP)
      return;
  }
  S.setLive(true);
  G.Link->Symbols.push_back({&S, D.cookie});
}

void bindExternal(slabjit_graph &G, Symbol &S) {
  auto Name = slabjit::symbolName(S);
  slabjit_decision D{};
  G.Session->Callbacks.external(G.Link->Object, Name.data(), Name.size(), &D);
  if (D.verdict == SLABJIT_ABSOLUTE)
    slabjit::makeAbsolute(*G.Graph, S, ExecutorAddr(D.address));
  else if (D.verdict == SLABJIT_RENAME) {
    // The graph's map of externals is keyed by name: out of it under the old name, into it under the new one.
    slabjit::makeAbsolute(*G.Graph, S, ExecutorAddr());
    slabjit::setSymbolName(*G.Graph, S, StringRef(D.name, D.name_len));
    G.Graph->makeExternal(S);
    S.setScope(Scope::Default);
  }
}

// JITLink's GOT and stub tables are keyed by name (TableManager.h), but a merged object may have several local symbols
// of one name, or a local one beside an external one.
void makeLocalNamesUnique(LinkGraph &G) {
  SmallVector<Symbol *, 8> Locals;
  DenseSet<StringRef> Names;
  for (auto *S : G.defined_symbols()) {
    if (!S->hasName())
      continue;
    if (S->getScope() == Scope::Local)
      Locals.push_back(S);
    else
      Names.insert(slabjit::symbolName(*S));
  }
  if (Locals.empty())
    return;
  for (auto *S : G.external_symbols())
    Names.insert(slabjit::symbolName(*S));
  unsigned N = 0;
  for (auto *S : Locals)
    if (!Names.insert(slabjit::symbolName(*S)).second)
      slabjit::setSymbolName(G, *S, ("\1" + Twine(N++) + " " + slabjit::symbolName(*S)).str());
}

} // namespace

extern "C" char *slabjit_graph_create(slabjit_session *Session, const char *Bytes, size_t Len, const char *Name,
                                      size_t NameLen, slabjit_graph **Out) noexcept {
  MemoryBufferRef Buffer(StringRef(Bytes, Len), StringRef(Name, NameLen));
  auto Graph = slabjit::createLinkGraph(Buffer, Session->JIT->getExecutionSession());
  if (!Graph)
    return slabjit::takeText(Graph.takeError());
  *Out = new slabjit_graph{Session, std::move(*Graph)};
  (*Out)->Link->Bytes = Buffer.getBuffer();
  return nullptr;
}

extern "C" void slabjit_graph_bind(slabjit_graph *Graph, void *Object, int Retain, int Indirect) noexcept {
  auto &G = *Graph->Graph;
  Graph->Link->Callbacks = &Graph->Session->Callbacks;
  Graph->Link->Object = Object;

  if (Indirect)
    slabjit::noteIndirectFunctions(*Graph->Link, G);
  makeLocalNamesUnique(G);
  for (auto &Sec : G.sections()) {
    // Sections without memory are left to be pruned.
    if (!Retain || !slabjit::isAllocated(Sec))
      continue;
    for (auto *B : Sec.blocks()) {
      auto *Content = B->isZeroFill() ? nullptr : B->getContent().data();
      auto Cookie = Graph->Session->Callbacks.retain_block(Object, Sec.getName().data(), Sec.getName().size(), Content);
      if (Cookie)
        Graph->Link->Blocks.push_back({B, Cookie});
    }
  }
  for (auto &R : Graph->Link->Blocks)
    G.addAnonymousSymbol(*R.Block, 0, 0, false, true);

  // Decisions change the graph's symbol sets, so collect first.
  SmallVector<Symbol *, 8> Defined, Discarded;
  for (auto *S : G.defined_symbols())
    if (S->hasName() && S->getScope() != Scope::Local)
      Defined.push_back(S);
  for (auto *S : Defined)
    bindDefined(*Graph, *S, Discarded);
  for (auto *S : Discarded) {
    S->setLinkage(Linkage::Strong);
    G.makeExternal(*S);
  }
  SmallVector<Symbol *, 8> Externals(G.external_symbols().begin(), G.external_symbols().end());
  for (auto *S : Externals)
    bindExternal(*Graph, *S);
}

extern "C" char *slabjit_graph_define(slabjit_graph *Graph, void *Tracker, const char *Key, size_t KeyLen) noexcept {
  std::unique_ptr<slabjit_graph> Owned(Graph);
  auto &ES = Graph->Session->JIT->getExecutionSession();
  MaterializationUnit::Interface I;
  I.SymbolFlags[ES.intern(StringRef(Key, KeyLen))] = JITSymbolFlags::MaterializationSideEffectsOnly;
  for (auto &[Name, Callable] : Graph->Exports)
    I.SymbolFlags[ES.intern(Name)] =
        JITSymbolFlags::Exported | (Callable ? JITSymbolFlags::Callable : JITSymbolFlags::None);
  ResourceTrackerSP RT(reinterpret_cast<ResourceTracker *>(Tracker));
  return slabjit::takeText(
      RT->getJITDylib().define(std::make_unique<GraphUnit>(std::move(I), *Graph), std::move(RT)));
}

extern "C" void slabjit_graph_dispose(slabjit_graph *Graph) noexcept { delete Graph; }
