//! Kernels of a decoder: RMSNorm, rotary embedding, SwiGLU, softmax, attention for one step, and products of quantised
//! matrices and vectors. `c/kernels.c` has the code, `c/kernels.contract` the buffers.
//!
//! The build compiles them for several CPUs into one image ([`IMAGE`]), which [`Kernels::load`] loads without LLVM. An
//! image knows what its functions need of the CPU, so the best variant is the first that can be looked up.

use slabjit::{Error, ImageError, JitEngine, Kernel, KernelFunction, KernelSignature, Library, Result};

/// The image: a shared object that `dlopen`, `nm` and gdb read, too.
pub const IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.so"));

/// The ends of the kernels' names, the best first.
pub const VARIANTS: &[&str] = include!(concat!(env!("OUT_DIR"), "/variants.rs"));

/// The objects of the variants, for [`Kernels::link`].
#[cfg(feature = "link")]
pub const OBJECTS: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// All kernels of one variant.
#[derive(Debug, Clone)]
pub struct Kernels {
    /// The end of their names.
    pub variant: &'static str,
    pub rmsnorm: Kernel,
    pub rope: Kernel,
    pub swiglu: Kernel,
    pub softmax: Kernel,
    pub attention: Kernel,
    pub quantize_q8: Kernel,
    /// Tilings, by name; each gives the same result.
    pub matvec_q4: Vec<(&'static str, Kernel)>,
    pub matvec_q8: Vec<(&'static str, Kernel)>,
}

type RmsNorm = unsafe extern "C" fn(*const f32, *const f32, *mut f32, i64, i64, f32);
type Rope = unsafe extern "C" fn(*const f32, *const f32, *const f32, *mut f32, i64, i64, i64);
type SwiGlu = unsafe extern "C" fn(*const f32, *const f32, *mut f32, i64);
type Softmax = unsafe extern "C" fn(*const f32, *mut f32, i64, i64);
type Attention = unsafe extern "C" fn(*const f32, *const f32, *const f32, *mut f32, *mut f32, i64, i64, i64, i64, f32);
type Quantize = unsafe extern "C" fn(*const f32, *mut u8, i64);
type MatVec = unsafe extern "C" fn(*const u8, *const u8, *mut f32, i64, i64);

impl Kernels {
    /// Loads the image, and the best variant that this CPU runs.
    ///
    /// # Errors
    /// Those of [`JitEngine::add_image`]; [`ImageError::Cpu`] if this CPU runs no variant.
    pub fn load(engine: &JitEngine) -> Result<Self> {
        let library = engine.add_image_named("kernels.so", IMAGE)?;
        let mut refused = None;
        for variant in VARIANTS {
            match Self::of(&library, variant, |kernel| library.signature(kernel)) {
                Err(error @ Error::Image(ImageError::Cpu { .. })) => refused = Some(error),
                other => return other,
            }
        }
        Err(refused.expect("there is a variant"))
    }

    /// Loads one variant.
    ///
    /// # Errors
    /// As for [`load`](Self::load).
    pub fn load_variant(engine: &JitEngine, variant: &'static str) -> Result<Self> {
        let library = engine.add_image_named("kernels.so", IMAGE)?;
        Self::of(&library, variant, |kernel| library.signature(kernel))
    }

    /// Links the object of a variant, as a program does that has no image.
    ///
    /// # Errors
    /// Those of [`JitEngine::add_object`].
    #[cfg(feature = "link")]
    pub fn link(engine: &JitEngine, variant: &'static str) -> Result<Self> {
        let (_, object) = OBJECTS.iter().find(|(name, _)| *name == variant).expect("it is one of VARIANTS");
        let library = engine.add_object(*object)?;
        let contracts = include_str!(concat!(env!("OUT_DIR"), "/kernels.contract"));
        let signatures = KernelSignature::parse_all(contracts)?;
        let signature = |kernel: &str| {
            let found = signatures.iter().find(|signature| signature.name() == kernel);
            Ok(found.expect("each kernel has a contract").clone())
        };
        Self::of(&library, variant, signature)
    }

    fn of(
        library: &Library,
        variant: &'static str,
        signature: impl Fn(&str) -> Result<KernelSignature>,
    ) -> Result<Self> {
        let of = Of { library, variant, signature };
        // The types are those of kernels.c.
        Ok(Self {
            variant,
            rmsnorm: of.kernel::<RmsNorm>("rmsnorm")?,
            rope: of.kernel::<Rope>("rope")?,
            swiglu: of.kernel::<SwiGlu>("swiglu")?,
            softmax: of.kernel::<Softmax>("softmax")?,
            attention: of.kernel::<Attention>("attention")?,
            quantize_q8: of.kernel::<Quantize>("quantize_q8")?,
            matvec_q4: of.tilings("matvec_q4")?,
            matvec_q8: of.tilings("matvec_q8")?,
        })
    }
}

/// Where kernels of one variant are looked up.
struct Of<'a, S> {
    library: &'a Library,
    variant: &'a str,
    signature: S,
}

impl<S: Fn(&str) -> Result<KernelSignature>> Of<'_, S> {
    fn kernel<F: KernelFunction>(&self, name: &str) -> Result<Kernel> {
        let name = format!("{name}_{}", self.variant);
        // SAFETY: `Kernels::of` names the types of kernels.c, which has no initialisers.
        (self.signature)(&name)?.bind(unsafe { self.library.get::<F>(&name)? })
    }

    fn tilings(&self, name: &str) -> Result<Vec<(&'static str, Kernel)>> {
        let tilings = ["1row", "2rows", "4rows"];
        tilings.into_iter().map(|rows| Ok((rows, self.kernel::<MatVec>(&format!("{name}_{rows}"))?))).collect()
    }
}
