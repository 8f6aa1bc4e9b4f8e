//! The functions of a library that is loaded at run time, as a table of typed pointers.

/// Makes the struct `Table`, whose functions return a status of the type that comes first. Those after `optional` may
/// be missing.
///
/// The code that lists a function promises that its types are those of the library's header on every 64-bit Linux.
macro_rules! table {
    (
        $seen:vis $status:ty:
        $($name:ident($($arg:ty),*);)*
        $(; optional $($maybe:ident($($maybe_arg:ty),*);)*)?
    ) => {
        /// The functions that we call. The optional ones are newer than the oldest supported library, or nothing
        /// depends on them.
        #[allow(non_snake_case, reason = "the names that the library's documentation has")]
        $seen struct Table {
            $($seen $name: unsafe extern "C" fn($($arg),*) -> $status,)*
            $($($seen $maybe: Option<unsafe extern "C" fn($($maybe_arg),*) -> $status>,)*)?
            /// Never unloaded: it has threads of its own, or holds on to a library that has.
            _library: std::mem::ManuallyDrop<libloading::Library>,
        }

        impl Table {
            /// Loads every function, or returns the name of the first that the library lacks.
            $seen fn load(library: libloading::Library) -> Result<Table, &'static str> {
                Ok(Table {
                    $($name: {
                        // SAFETY: the field's type is that of the list, which is the header's, as this macro asks.
                        let found = unsafe { library.get(concat!(stringify!($name), "\0")) };
                        *found.map_err(|_| stringify!($name))?
                    },)*
                    $($($maybe: {
                        // SAFETY: as above.
                        let found = unsafe { library.get(concat!(stringify!($maybe), "\0")) };
                        found.ok().map(|found| *found)
                    },)*)?
                    _library: std::mem::ManuallyDrop::new(library),
                })
            }
        }
    };
}

/// What the system's loader said: libloading keeps it as the source of its own error.
pub(crate) fn said(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}
