// What LLVM's C API does not say of modules: and modules whose functions are compiled one by one.
#include "internal.h"

#include <llvm/IR/Constants.h>
#include <llvm/IR/InstrTypes.h>
#include <llvm/IR/Module.h>

using namespace llvm;

namespace {

/// Marks functions that are compiled by themselves.
constexpr const char *Alone = "slabjit-alone";

/// The name that the object has, which the code generator takes as it is behind this byte.
StringRef symbolName(const GlobalValue &G) {
  auto Name = G.getName();
  Name.consume_front("\1");
  return Name;
}

/// No object can refer to such a name of another's.
bool isTemporary(StringRef Name) { return Name.take_front(2) == ".L"; }

bool isShared(const GlobalValue &G) {
  return !G.hasLocalLinkage() && !isTemporary(symbolName(G)) &&
         (G.isStrongDefinitionForLinker() || !G.hasHiddenVisibility());
}

/// Gives a module's own definitions names that its parts share, and no other module has.
void share(GlobalValue &G, StringRef Suffix, unsigned &Nameless) {
  if (G.isDeclaration() || G.hasAvailableExternallyLinkage() || G.hasAppendingLinkage() || isShared(G))
    return;
  auto Name = symbolName(G).str();
  if (Name.empty())
    Name = "." + std::to_string(Nameless++);
  G.setName((isTemporary(Name) ? "local" : "") + Name + Suffix.str());
  G.setLinkage(GlobalValue::ExternalLinkage);
  G.setVisibility(GlobalValue::HiddenVisibility);
  if (auto *O = dyn_cast<GlobalObject>(&G))
    O->setComdat(nullptr);
}

/// Adds the functions whose code has this value among its operands, at any depth of constants.
void addUsers(const Value &V, SmallPtrSetImpl<const Value *> &Seen, SmallPtrSetImpl<const Function *> &Functions) {
  SmallVector<const Value *, 8> Next{&V};
  while (!Next.empty())
    for (auto *User : Next.pop_back_val()->users()) {
      if (auto *I = dyn_cast<Instruction>(User))
        Functions.insert(I->getFunction());
      else if (isa<Constant>(User) && Seen.insert(User).second)
        Next.push_back(User);
    }
}

/// Adds the functions that this value refers to, and that they do, at any depth: what may run after it.
void addReached(const Value *From, SmallPtrSetImpl<const Value *> &Seen, SmallPtrSetImpl<const Function *> &Functions) {
  SmallVector<const Value *, 8> Next{From};
  while (!Next.empty()) {
    auto *V = Next.pop_back_val();
    if (!isa<Constant>(V) || !Seen.insert(V).second)
      continue;
    auto *F = dyn_cast<Function>(V);
    if (!F)
      Next.append(cast<Constant>(V)->op_begin(), cast<Constant>(V)->op_end());
    else if (Functions.insert(F).second)
      for (auto &Block : *F)
        for (auto &I : Block)
          Next.append(I.op_begin(), I.op_end());
  }
}

/// Adds what runs when the code ends: nothing can be compiled then.
void addEnds(const Module &M, SmallPtrSetImpl<const Function *> &Functions) {
  SmallPtrSet<const Value *, 8> Seen;
  for (auto &G : M.globals())
    if (G.hasInitializer() && (G.getName() == "llvm.global_dtors" || G.getSection().take_front(11) == ".fini_array" ||
                               G.getSection().take_front(6) == ".dtors"))
      addReached(G.getInitializer(), Seen, Functions);
  for (auto *Name : {"atexit", "at_quick_exit", "__cxa_atexit", "__cxa_at_quick_exit", "__cxa_thread_atexit",
                     "__cxa_thread_atexit_impl", "pthread_key_create", "on_exit"})
    if (auto *F = M.getFunction(Name))
      for (auto *User : F->users())
        if (auto *Call = dyn_cast<CallBase>(User))
          for (auto &Argument : Call->args())
            addReached(Argument, Seen, Functions);
}

bool isScalable(const Type *T) { return isa<ScalableVectorType>(T); }

/// Whether its registers are those that the stubs' caller keeps.
bool hasPlainArguments(const FunctionType &T) {
  return !isScalable(T.getReturnType()) && none_of(T.params(), isScalable);
}

/// A declaration of the same name in its place.
void declare(GlobalValue &G) {
  auto &M = *G.getParent();
  GlobalValue *Declared;
  if (auto *T = dyn_cast<FunctionType>(G.getValueType()))
    Declared = Function::Create(T, GlobalValue::ExternalLinkage, G.getAddressSpace(), "", &M);
  else
    Declared = new GlobalVariable(M, G.getValueType(), false, GlobalValue::ExternalLinkage, nullptr, "", nullptr,
                                  G.getThreadLocalMode(), G.getAddressSpace());
  Declared->setVisibility(G.getVisibility());
  Declared->takeName(&G);
  G.replaceAllUsesWith(Declared);
  G.eraseFromParent();
}

/// Leaves a function's code to another part, but for what this one may or must inline.
void leave(Function &F, bool Inlined) {
  if (Inlined)
    F.setLinkage(GlobalValue::AvailableExternallyLinkage);
  else
    F.deleteBody();
  F.setComdat(nullptr);
}

/// Forgets declarations that nothing refers to: every pass walks over them.
void forgetUnused(Module &M) {
  for (auto &F : make_early_inc_range(M))
    if (F.isDeclaration() && F.use_empty())
      F.eraseFromParent();
  for (auto &G : make_early_inc_range(M.globals()))
    if (G.isDeclaration() && G.use_empty())
      G.eraseFromParent();
}

/// Leaves one function, under another name, and what it may inline. All others call it by its own name.
Error keepOne(Module &M, Function &F, StringRef Name) {
  // Functions that must be inlined go where they are called.
  SmallPtrSet<Function *, 8> Inlined;
  SmallVector<Function *, 8> Next{&F};
  while (!Next.empty()) {
    auto *At = Next.pop_back_val();
    if (auto E = At->materialize())
      return E;
    for (auto &Block : *At)
      for (auto &I : Block)
        if (auto *Call = dyn_cast<CallBase>(&I))
          if (auto *Callee = Call->getCalledFunction())
            if (Callee != &F && Callee->hasFnAttribute(Attribute::AlwaysInline) && !Callee->isDeclaration() &&
                Inlined.insert(Callee).second)
              Next.push_back(Callee);
  }
  for (auto &Other : M)
    if (&Other != &F && !Other.isDeclaration())
      leave(Other, Inlined.count(&Other));
  for (auto &G : make_early_inc_range(M.globals())) {
    if (G.hasAppendingLinkage()) {
      G.eraseFromParent();
      continue;
    }
    if (G.isDeclaration())
      continue;
    G.setComdat(nullptr);
    // Its value may be known, as long as no other definition can count.
    if (G.isConstant() && G.hasDefinitiveInitializer() && !G.isThreadLocal()) {
      G.setLinkage(GlobalValue::AvailableExternallyLinkage);
    } else {
      G.setInitializer(nullptr);
      G.setLinkage(GlobalValue::ExternalLinkage);
    }
  }
  for (auto &A : make_early_inc_range(M.aliases()))
    declare(A);
  for (auto &I : make_early_inc_range(M.ifuncs()))
    declare(I);
  M.setModuleInlineAsm(StringRef());
  auto *Declared = Function::Create(F.getFunctionType(), GlobalValue::ExternalLinkage, F.getAddressSpace(), "", &M);
  Declared->setAttributes(F.getAttributes());
  Declared->setCallingConv(F.getCallingConv());
  Declared->setVisibility(F.getVisibility());
  Declared->takeName(&F);
  F.setName(Name);
  F.setLinkage(GlobalValue::ExternalLinkage);
  F.setVisibility(GlobalValue::HiddenVisibility);
  F.setComdat(nullptr);
  // It may call itself, but its address is that of the name.
  F.replaceUsesWithIf(Declared, [&](Use &U) {
    auto *Call = dyn_cast<CallBase>(U.getUser());
    return !(Call && Call->isCallee(&U) && Call->getFunction() == &F);
  });
  return Error::success();
}

} // namespace

extern "C" void slabjit_module_set_shared(LLVMModuleRef M) noexcept {
  Module &Mod = *unwrap(M);
  auto *Zero = ConstantAsMetadata::get(ConstantInt::get(Type::getInt32Ty(Mod.getContext()), 0));
  // Replaces what is there; LLVM's own setters add a second flag of the name, which the verifier refuses.
  Mod.setModuleFlag(Module::Max, "PIE Level", Zero);
}

extern "C" void slabjit_module_part(LLVMModuleRef Raw, const char *Suffix, size_t Len) noexcept {
  Module &M = *unwrap(Raw);
  unsigned Nameless = 0;
  for (auto &G : M.global_values())
    share(G, StringRef(Suffix, Len), Nameless);
  // Those that belong to the variables: they use thread-local ones, or have addresses of blocks or another name, or
  // run when the code ends.
  SmallPtrSet<const Function *, 8> Kept;
  SmallPtrSet<const Value *, 8> Seen;
  for (auto &G : M.global_values())
    if (G.isThreadLocal())
      addUsers(G, Seen, Kept);
  addEnds(M, Kept);
  for (auto &A : M.aliases())
    if (auto *F = dyn_cast_or_null<Function>(A.getAliaseeObject()))
      Kept.insert(F);
  for (auto &I : M.ifuncs())
    if (auto *F = I.getResolverFunction())
      Kept.insert(F);
  for (auto &F : M)
    if (!F.isDeclaration() && !F.hasAvailableExternallyLinkage() && !Kept.count(&F) &&
        hasPlainArguments(*F.getFunctionType()) && none_of(F, [](auto &Block) { return Block.hasAddressTaken(); }))
      F.addFnAttr(Alone);
}

extern "C" int slabjit_function_is_part(LLVMValueRef Value) noexcept {
  auto *F = dyn_cast<Function>(unwrap(Value));
  return F && !F->isDeclaration() && F->hasFnAttribute(Alone);
}

extern "C" char *slabjit_module_keep_part(LLVMModuleRef Raw, const char *Function, size_t Len, const char *Name,
                                          size_t NameLen) noexcept {
  Module &M = *unwrap(Raw);
  if (Function) {
    StringRef Wanted(Function, Len);
    auto *F = M.getFunction(Wanted);
    F = F ? F : M.getFunction("\1" + Wanted.str());
    if (auto E = F ? keepOne(M, *F, StringRef(Name, NameLen)) : slabjit::refused("no such function"))
      return slabjit::takeText(std::move(E));
  } else {
    for (auto &F : M)
      if (slabjit_function_is_part(wrap(&F)))
        leave(F, F.hasFnAttribute(Attribute::AlwaysInline));
  }
  // Of the code that is left, all is read now.
  if (auto E = M.materializeAll())
    return slabjit::takeText(std::move(E));
  forgetUnused(M);
  return nullptr;
}
