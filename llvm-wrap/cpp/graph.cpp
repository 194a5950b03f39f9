// LinkGraphs: built from bytes, and bound to the caller's decisions.
#include "internal.h"

#include "llvm/Support/MemoryBuffer.h"

using namespace llvm;
using namespace llvm::jitlink;
using namespace llvm::orc;

namespace {

void bindDefined(slabjit_graph &G, Symbol &S, SmallVectorImpl<Symbol *> &Discarded) {
  auto Name = slabjit::symbolName(S);
  slabjit_decision D{};
  G.Link->Callbacks->defined(G.Link->Object, Name.data(), Name.size(), &D);
  if (D.verdict == SLABJIT_DISCARD)
    return Discarded.push_back(&S);
  S.setLinkage(Linkage::Strong);
  if (D.verdict == SLABJIT_RENAME) {
    StringRef Export(D.name, D.name_len);
    slabjit::setSymbolName(*G.Graph, S, Export);
    S.setScope(Scope::Default);
    G.Link->Exports.push_back(&S);
  } else {
    S.setScope(Scope::Local);
    if (D.verdict == SLABJIT_DROP)
      return;
  }
  S.setLive(true);
  G.Link->Symbols.push_back({&S, D.cookie});
}

// Externals by the name they were given, and those that stand for another one of the same name.
struct Given {
  DenseMap<StringRef, Symbol *> ByName;
  DenseMap<Symbol *, Symbol *> Second;
};

// Leads references to second names to the first, all in one go.
void retarget(LinkGraph &G, const DenseMap<Symbol *, Symbol *> &Second) {
  if (Second.empty())
    return;
  for (auto *B : G.blocks())
    for (auto &E : B->edges())
      if (auto *First = Second.lookup(&E.getTarget()))
        E.setTarget(*First);
  for (auto &[S, First] : Second)
    G.removeAbsoluteSymbol(*S);
}

void bindExternal(slabjit_graph &G, Symbol &S, Given &Given) {
  auto Name = slabjit::symbolName(S);
  slabjit_decision D{};
  G.Link->Callbacks->external(G.Link->Object, Name.data(), Name.size(), &D);
  if (D.verdict == SLABJIT_ABSOLUTE)
    slabjit::makeAbsolute(*G.Graph, S, ExecutorAddr(D.address));
  else if (D.verdict == SLABJIT_RENAME) {
    // The graph's map of externals is keyed by name: out of it under the old name, into it under the new one.
    slabjit::makeAbsolute(*G.Graph, S, ExecutorAddr());
    StringRef New(D.name, D.name_len);
    // Two names may mean one definition (`f` and `f@VERSION`), and a graph has one external of a name.
    auto Same = Given.ByName.try_emplace(New, &S);
    if (!Same.second) {
      Given.Second[&S] = Same.first->second;
      return;
    }
    slabjit::setSymbolName(*G.Graph, S, New);
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

/// Notes the names of functions. Mapping symbols (AAELF64, 5.5.4) and labels of compilers are none.
void noteFunctions(slabjit::Link &Link, LinkGraph &G) {
  for (auto &Sec : G.sections()) {
    if ((Sec.getMemProt() & MemProt::Exec) == MemProt::None || !slabjit::isAllocated(Sec))
      continue;
    for (auto *S : Sec.symbols()) {
      auto Name = slabjit::symbolName(*S);
      if (Name.empty() || Name[0] == '$' || Name.take_front(2) == ".L")
        continue;
      auto &B = S->getBlock();
      if (auto Bytes = S->getSize() ? S->getSize() : B.getSize() - S->getOffset())
        Link.Functions.push_back({slabjit::keptName(G, *S), &B, S->getOffset(), Bytes});
    }
  }
}

void noteBlocks(slabjit::Link &Link, LinkGraph &G) {
  for (auto &Sec : G.sections())
    if (slabjit::isAllocated(Sec))
      for (auto *B : Sec.blocks()) {
        auto *Content = B->isZeroFill() ? nullptr : B->getContent().data();
        bool IsOfObject = Content >= Link.Bytes.begin() && Content < Link.Bytes.end();
        Link.Located.push_back({B, slabjit::sectionName(Link, *B), IsOfObject ? Content : nullptr});
      }
}

} // namespace

extern "C" char *slabjit_graph_create(const char *Bytes, size_t Len, const char *Name, size_t NameLen,
                                      slabjit_graph **Out) noexcept {
  MemoryBufferRef Buffer(StringRef(Bytes, Len), StringRef(Name, NameLen));
  auto Plain = slabjit::buildPlain(Buffer);
  bool IsPlain = Plain != nullptr;
  auto Graph = IsPlain ? std::move(Plain) : slabjit::createLinkGraph(Buffer);
  if (!Graph)
    return slabjit::takeText(Graph.takeError());
  *Out = new slabjit_graph{std::move(*Graph)};
  (*Out)->Link->Bytes = Buffer.getBuffer();
  (*Out)->Link->IsPlain = IsPlain;
  return nullptr;
}

extern "C" void slabjit_graph_bind(slabjit_graph *Graph, const slabjit_callbacks *Callbacks, void *Object, int Retain,
                                   int Indirect, int Locate) noexcept {
  auto &G = *Graph->Graph;
  Graph->Link->Callbacks = Callbacks;
  Graph->Link->Object = Object;

  if (Indirect)
    slabjit::noteIndirectFunctions(*Graph->Link, G);
  noteFunctions(*Graph->Link, G);
  if (Locate)
    noteBlocks(*Graph->Link, G);
  makeLocalNamesUnique(G);
  for (auto &Sec : G.sections()) {
    // Sections without memory are left to be pruned.
    if (!Retain || !slabjit::isAllocated(Sec))
      continue;
    for (auto *B : Sec.blocks()) {
      auto *Content = B->isZeroFill() ? nullptr : B->getContent().data();
      auto Name = slabjit::sectionName(*Graph->Link, *B);
      auto Cookie = Callbacks->retain_block(Object, Name.data(), Name.size(), Content);
      if (!Cookie)
        continue;
      if (Cookie & SLABJIT_APART) {
        Graph->Link->Apart.insert(&Sec);
        Cookie &= ~SLABJIT_APART;
      }
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
  Given Given;
  for (auto *S : Externals)
    bindExternal(*Graph, *S, Given);
  retarget(G, Given.Second);
}

extern "C" void slabjit_graph_dispose(slabjit_graph *Graph) noexcept { delete Graph; }
