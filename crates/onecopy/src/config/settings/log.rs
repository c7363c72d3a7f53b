//! The settings of the log, for the table. [`crate::config::log`] checks them together.
//!
//! Example: `log = "etcd"` needs `etcd` and `node`.

use super::setting::Setting;
use crate::config::kinds::Kind;

pub(super) const LOG: Setting = Setting {
    name: "log",
    flag: "log",
    kind: Kind::Word(&["file", "etcd"]),
    default: "file",
    can_reload: false,
    about: "Where the log is kept. `file`: in the folder `data`, on one machine. `etcd`: on a majority of the members of \
            an etcd, with a copy in that folder, so that the loss of this machine loses nothing; see \
            [Keep the log on etcd](../how-to/etcd.md). Only protocols that propagate rows, such as `onecopy`, can \
            keep it there.",
};

pub(super) const ETCD: Setting = Setting {
    name: "etcd",
    flag: "etcd",
    kind: Kind::Urls,
    default: "",
    can_reload: false,
    about: "Addresses of the members of etcd, for `log = \"etcd\"`: those for clients. Name all members.",
};

pub(super) const ETCD_CA_FILE: Setting = Setting {
    name: "etcd_ca_file",
    flag: "etcd-ca-file",
    kind: Kind::OptionalText,
    default: "",
    can_reload: false,
    about: "File with the authorities that vouch for etcd's certificates, as PEM. If empty, those of the system do.",
};

pub(super) const ETCD_CERTIFICATE_FILE: Setting = Setting {
    name: "etcd_certificate_file",
    flag: "etcd-certificate-file",
    kind: Kind::OptionalText,
    default: "",
    can_reload: false,
    about: "File with the certificate that Onecopy shows to etcd, and its chain, as PEM. If empty, it shows none.",
};

pub(super) const ETCD_KEY_FILE: Setting = Setting {
    name: "etcd_key_file",
    flag: "etcd-key-file",
    kind: Kind::OptionalText,
    default: "",
    can_reload: false,
    about: "File with the key of that certificate, as PEM. No other account may be able to read it.",
};

pub(super) const NODE: Setting = Setting {
    name: "node",
    flag: "node",
    kind: Kind::OptionalText,
    default: "",
    can_reload: false,
    about: "Name of this node, for `log = \"etcd\"`: up to 40 letters, digits, dots and dashes, different at each node.",
};

pub(super) const NODES: Setting = Setting {
    name: "nodes",
    flag: "nodes",
    kind: Kind::Nodes,
    default: "",
    can_reload: false,
    about: "All nodes of the cluster, this one included, each as `name=host:port`: where the others reach it. The same list \
            at each node. With a list, one of the nodes leads, and another one takes over when it is lost; see \
            [Run several nodes](../how-to/nodes.md). It needs `log = \"etcd\"`. If empty, the node is alone.",
};

pub(super) const LINK_LISTEN: Setting = Setting {
    name: "link_listen",
    flag: "link-listen",
    kind: Kind::OptionalText,
    default: "",
    can_reload: false,
    about: "Address as `host:port` on which this node listens for the other nodes. If empty, it is the one in `nodes`.",
};

pub(super) const LINK_CA_FILE: Setting = Setting {
    name: "link_ca_file",
    flag: "link-ca-file",
    kind: Kind::OptionalText,
    default: "",
    can_reload: false,
    about: "File with the authority that has signed the certificates of all nodes, as PEM. The nodes encrypt what they say to \
            each other, and prove their names. It may be empty only if all addresses in `nodes` are of the loopback.",
};

pub(super) const LINK_CERTIFICATE_FILE: Setting = Setting {
    name: "link_certificate_file",
    flag: "link-certificate-file",
    kind: Kind::OptionalText,
    default: "",
    can_reload: false,
    about: "File with the certificate of this node, and its chain, as PEM. Its alternative names include the name of the node.",
};

pub(super) const LINK_KEY_FILE: Setting = Setting {
    name: "link_key_file",
    flag: "link-key-file",
    kind: Kind::OptionalText,
    default: "",
    can_reload: false,
    about: "File with the key of that certificate, as PEM. No other account may be able to read it.",
};

pub(super) const CLUSTER_NAME: Setting = Setting {
    name: "cluster_name",
    flag: "cluster-name",
    kind: Kind::Text,
    default: "main",
    can_reload: false,
    about: "Name of the cluster on etcd, for `log = \"etcd\"`. Its keys begin with `/onecopy/` and this name, so several \
            clusters can share an etcd.",
};

pub(super) const LOG_PATIENCE: Setting = Setting {
    name: "log_patience",
    flag: "log-patience",
    kind: Kind::Duration(100, 3_600_000),
    default: "10s",
    can_reload: false,
    about: "How long etcd may be out of reach, for `log = \"etcd\"`, before new commits are refused (57P03). Those under \
            way wait on.",
};
