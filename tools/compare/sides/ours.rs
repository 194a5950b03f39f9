//! This crate.

use slabjit::{JitEngine, JitEngineBuilder, Library, SlabLayout, Symbol};

use super::{Entry, Hold, Loaded, Object, Side};

struct Ours(JitEngine);

struct Held {
    library: Library,
    symbol: Symbol<Entry>,
}

/// Every object in a slab of its own.
pub fn per_object() -> Result<Box<dyn Side>, String> {
    engine(JitEngine::builder().slab_layout(SlabLayout::PerObject))
}

/// Small objects share pages.
pub fn packed() -> Result<Box<dyn Side>, String> {
    engine(JitEngine::builder().slab_layout(SlabLayout::Packed))
}

fn engine(builder: JitEngineBuilder) -> Result<Box<dyn Side>, String> {
    Ok(Box::new(Ours(builder.build().map_err(|error| error.to_string())?)))
}

impl Side for Ours {
    fn load(&self, object: &mut Object) -> Result<Loaded, String> {
        let say = |error: slabjit::Error| error.to_string();
        let library = self.0.add_object(std::mem::take(&mut object.bytes)).map_err(say)?;
        loaded(object, library)
    }

    fn load_together(&self, objects: &mut [Object]) -> Result<Vec<Loaded>, String> {
        let library = self.0.add_objects(objects.iter_mut().map(|object| std::mem::take(&mut object.bytes)));
        let library = library.map_err(|error| error.to_string())?;
        objects.iter().map(|object| loaded(object, library.clone())).collect()
    }
}

fn loaded(object: &Object, library: Library) -> Result<Loaded, String> {
    let entry = object.entry.to_str().map_err(|error| error.to_string())?;
    // SAFETY: the objects are those of `workloads`, whose entries have this type and whose initialisers only set
    // variables.
    let symbol: Symbol<Entry> = unsafe { library.get(entry) }.map_err(|error| error.to_string())?;
    let address = symbol.address().addr();
    // SAFETY: just found, and held.
    unsafe { object.ask(address) }?;
    Ok(Loaded { address: Some(address), hold: Box::new(Held { library, symbol }) })
}

impl Hold for Held {
    fn unload(self: Box<Self>) -> Result<(), String> {
        drop(self.symbol);
        drop(self.library);
        Ok(())
    }
}
