//! The name that a misspelt one probably meant.

/// Least likeness, from 0 to 1, of a name that is worth a suggestion: what clap takes too.
const LIKENESS_MIN: f64 = 0.7;

/// What others call a format, without signs, and what it is called here.
pub const ELSEWHERE: [(&[&str], &[&str]); 19] = [
    (&["webdataset", "wds", "tgz", "targz", "tarball"], &["tar"]),
    (&["imagefolder", "imagenet", "datasetfolder", "audiofolder", "torchvision", "image", "images"], &["folder"]),
    (&["coco", "yolo", "audio", "video", "file", "files"], &["folder"]),
    (&["hf", "huggingface", "datasets", "hfdatasets"], &["parquet", "arrow"]),
    (&["lerobot", "pq"], &["parquet"]),
    (&["feather", "ipc"], &["arrow"]),
    (&["mosaic", "mosaicml", "streaming", "mosaicstreaming", "mosaicmlstreaming"], &["mds"]),
    (&["lit", "lightning", "lightningdata"], &["litdata"]),
    (&["ffcv"], &["beton"]),
    (&["megatron", "megatronlm", "nanogpt", "token", "tokenized"], &["tokens"]),
    (&["tfrecords", "tfds", "tensorflow"], &["tfrecord"]),
    (&["grain", "riegeli"], &["array_record"]),
    (&["json", "ndjson", "jsonlines"], &["jsonl"]),
    (&["tsv", "table"], &["csv"]),
    (&["txt", "lines"], &["text"]),
    (&["h5", "hdf", "h5py"], &["hdf5"]),
    (&["numpy", "array", "arrays"], &["npy", "npz"]),
    (&["mnist"], &["idx"]),
    (&["bin", "binary", "raw", "record", "fixed"], &["records"]),
];

/// The same for formats, which have other names elsewhere.
pub fn nearest_format(given: &str, names: &[&str]) -> String {
    let plain = |name: &str| name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let given_plain = plain(given);
    let meant = ELSEWHERE.iter().find(|(others, _)| others.contains(&&*given_plain)).map(|(_, ours)| ours.to_vec());
    let meant = meant.or_else(|| Some(vec![*names.iter().find(|name| plain(name) == given_plain)?]));
    let Some(meant) = meant else { return nearest(given, names) };
    let meant: Vec<String> = meant.iter().map(|name| format!("{name:?}")).collect();
    format!("did you mean {}? There are {}", meant.join(" or "), names.join(", "))
}

/// "did you mean ...?" where one name is alike, and then all names.
pub fn nearest(given: &str, names: &[&str]) -> String {
    let best =
        names.iter().map(|name| (strsim::jaro(given, name), *name)).filter(|(likeness, _)| *likeness >= LIKENESS_MIN);
    let best = best.max_by(|one, other| one.0.total_cmp(&other.0));
    let meant = best.map_or(String::new(), |(_, name)| format!("did you mean {name:?}? "));
    format!("{meant}There are {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_has_a_nearest_one() {
        let names = ["fields", "columns", "record_bytes"];
        assert!(nearest("feilds", &names).starts_with("did you mean \"fields\"? There are fields, columns"));
        assert!(nearest("record_byte", &names).starts_with("did you mean \"record_bytes\"?"));
        assert_eq!(nearest("quux", &names), "There are fields, columns, record_bytes");
    }
}
