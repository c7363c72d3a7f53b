//! A stage borrows the two components of a session, and may call the stages before it.

/// Declares a stage, and methods that lend what it borrows to the stages before it. The order of folders that
/// `cargo xtask tidy` checks allows no others.
macro_rules! stage {
    ($(#[$doc:meta])* $stage:ident calls { $($before:tt)* }) => {
        $(#[$doc])*
        pub(crate) struct $stage<'a> {
            pub(crate) link: &'a mut $crate::link::Link,
            pub(crate) txn: &'a mut $crate::transaction::open::OpenTransaction,
        }

        impl $stage<'_> {
            $crate::transaction::stage::lend! { $($before)* }
        }
    };
}

/// Methods that lend both components: to the read-only view, and to the stages that are named.
macro_rules! lend {
    ($($method:ident: $stage:ident),*) => {
        pub(crate) fn view(&self) -> $crate::transaction::view::View<'_> {
            $crate::transaction::view::View { link: &self.link, txn: &self.txn }
        }

        $(pub(crate) fn $method(&mut self) -> $stage<'_> {
            $stage { link: &mut self.link, txn: &mut self.txn }
        })*
    };
}

pub(crate) use {lend, stage};
