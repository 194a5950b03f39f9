//! The names that a library has from images. They are read from the images' tables when they are asked for.

use std::sync::Arc;

use hashbrown::HashTable;

use crate::cpu::list::{Lack, Lacks};
use crate::elf::image_file::{Export, ExportPlace, Exports, ImageIndex};
use crate::live::resolve::object_bytes::KeptBytes;
use crate::live::resolve::prepared::PreparedObject;
use crate::live::resolve::symbol::{Symbol, hash};
use crate::name::Name;

/// The names of all images, of which the first counts.
#[derive(Debug, Default)]
pub(super) struct ImageNameTable {
    /// In the order of their numbers.
    images: Vec<ImageNames>,
    /// The position of the image that defines a name, with the name's hash, once there are more than [`FEW`].
    owners: HashTable<(u64, u32)>,
}

/// So many images are asked for a name one by one.
const FEW: usize = 4;

impl ImageNameTable {
    pub(super) fn len(&self) -> usize {
        self.images.len()
    }

    pub(super) fn push(&mut self, image: ImageNames) {
        let Self { images, owners } = self;
        images.push(image);
        if images.len() <= FEW {
            return;
        }
        // The first time, those of all that came before, too.
        let first = if owners.is_empty() { 0 } else { images.len() - 1 };
        for (at, image) in (0..).zip(&*images).skip(first) {
            for (name, _) in image.iter() {
                let hash = hash(name);
                if Self::look_up(images, owners, name, hash).is_none() {
                    owners.insert_unique(hash, (hash, at), |(hash, _)| *hash);
                }
            }
        }
    }

    /// Forgets all but the first ones.
    pub(super) fn truncate(&mut self, images: usize) {
        self.images.truncate(images);
        let kept = if images > FEW { images } else { 0 };
        self.owners.retain(|(_, image)| (*image as usize) < kept);
    }

    pub(super) fn get(&self, name: &str) -> Option<Symbol> {
        // `f@VERSION` means `f@@VERSION`, too.
        let default = || {
            let (base, version) = name.split_once('@').filter(|(_, version)| !version.starts_with('@'))?;
            self.find(&format!("{base}@@{version}"))
        };
        self.find(name).or_else(default)
    }

    fn find(&self, name: &str) -> Option<Symbol> {
        let Self { images, owners } = self;
        if images.len() <= FEW {
            return images.iter().find_map(|image| image.get(name));
        }
        Self::look_up(images, owners, name, hash(name))
    }

    fn look_up(images: &[ImageNames], owners: &HashTable<(u64, u32)>, name: &str, hash: u64) -> Option<Symbol> {
        let symbol = |(_, at): &(u64, u32)| images.get(*at as usize)?.get(name);
        owners.find(hash, |owner| owner.0 == hash && symbol(owner).is_some()).and_then(symbol)
    }

    /// Returns the names of all images; those that several define come with each.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, Symbol)> {
        self.images.iter().flat_map(ImageNames::iter)
    }

    /// Returns the image that is object number `object`.
    pub(super) fn of(&self, object: u32) -> Option<&ImageNames> {
        self.images.get(self.position(object)?)
    }

    pub(super) fn of_mut(&mut self, object: u32) -> Option<&mut ImageNames> {
        let at = self.position(object)?;
        self.images.get_mut(at)
    }

    fn position(&self, object: u32) -> Option<usize> {
        self.images.binary_search_by_key(&object, |image| image.object).ok()
    }
}

/// The names of one image.
#[derive(Debug)]
pub(super) struct ImageNames {
    object: u32,
    object_name: Name,
    image: Arc<ImageIndex>,
    lacks: Option<Arc<Lacks>>,
    tables: KeptBytes,
    /// The addresses of its segments, then that of its thread-local block; `None` until it is linked.
    addresses: Option<Box<[u64]>>,
}

impl ImageNames {
    /// Keeps the tables of an image that becomes object number `object`.
    pub(super) fn new(object: u32, prepared: &PreparedObject, image: &Arc<ImageIndex>) -> Self {
        Self {
            object,
            object_name: prepared.name.clone(),
            image: Arc::clone(image),
            lacks: prepared.lacks.clone(),
            tables: prepared.bytes.keep(image.export_tables.span()),
            addresses: None,
        }
    }

    /// Gives the names their addresses, or takes these away.
    pub(super) fn set_addresses(&mut self, addresses: Option<&[u64]>) {
        self.addresses = addresses.map(Box::from);
    }

    pub(super) fn get(&self, name: &str) -> Option<Symbol> {
        self.exports().find(name).map(|export| self.symbol(&export))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, Symbol)> {
        self.exports().iter().map(|export| (export.name, self.symbol(&export)))
    }

    /// Returns the instruction that this CPU does not run, of a function of this number, and the image's name.
    pub(super) fn lack(&self, definition: u32) -> Option<(&Name, &Lack)> {
        let lacks = self.lacks.as_ref()?;
        let ExportPlace::Segment(_, address) = self.exports().place(definition)? else { return None };
        Some((&self.object_name, lacks.at(address)?))
    }

    fn exports(&self) -> Exports<'_> {
        Exports::new(&self.image, &self.tables, self.tables.start())
    }

    fn symbol(&self, export: &Export<'_>) -> Symbol {
        Symbol::of_image(self.object, export, self.address_of(export.place))
    }

    /// Returns the address of the definition of a number, once it is linked.
    pub(super) fn address(&self, definition: u32) -> Option<u64> {
        self.address_of(self.exports().place(definition)?)
    }

    fn address_of(&self, place: ExportPlace) -> Option<u64> {
        let segments = self.image.segments.len();
        let of = |at: usize| self.addresses.as_ref()?.get(at).copied();
        let address = match place {
            ExportPlace::Absolute(value) => Some(value),
            ExportPlace::Segment(at, address) => {
                of(at).zip(self.image.segments.get(at)).map(|(start, segment)| start + (address - segment.address))
            }
            ExportPlace::ThreadLocal(offset) => of(segments).map(|block| block + offset),
        };
        address.filter(|address| *address != 0)
    }
}
