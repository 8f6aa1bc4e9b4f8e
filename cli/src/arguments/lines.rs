//! Options of formats made of lines, and of the columns of tables.

use clap::Args;
use uringload::dataset::{DType, LineOptions};

/// How lines become columns.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Dataset")]
pub struct LineArguments {
    /// Columns of parquet and arrow, or fields of lines, that are wanted, in this order: fields with a type behind a
    /// colon or without (id:i64,text): i8 to u64, f32, f64, bool, or u8 for text [default: all columns; those of csv
    /// as text; the line itself of jsonl].
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse_column)]
    pub columns: Vec<TypedName>,
    /// What stands between the fields of csv: a comma, "tab", ";" or "|" [default: a tab in .tsv, else a comma].
    #[arg(long, value_name = "CHAR", value_parser = parse_delimiter)]
    pub delimiter: Option<u8>,
    /// Take the first row of csv as a sample; columns are then called 0, 1 and so on.
    #[arg(long)]
    pub no_header: bool,
}

/// The name of a column, and perhaps its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedName {
    name: String,
    dtype: Option<DType>,
}

impl LineArguments {
    /// Whether nothing was asked for.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty() && self.delimiter.is_none() && !self.no_header
    }

    /// Names of columns whose types are those of their files.
    ///
    /// # Errors
    /// `InvalidArgument` where a type was named.
    #[cfg(feature = "parquet")]
    pub fn names(&self) -> Result<Vec<String>, uringload::Error> {
        if let Some(typed) = self.columns.iter().find(|column| column.dtype.is_some()) {
            let doing = format!("column {:?} has the type that its file says", typed.name);
            let error = uringload::Error::new(uringload::ErrorKind::InvalidArgument, doing);
            return Err(error.with_remedy("name it without a type"));
        }
        Ok(self.columns.iter().map(|column| column.name.clone()).collect())
    }

    /// The same, for the library.
    pub fn options(&self) -> LineOptions {
        let typed = |column: &TypedName| column.dtype.map(|dtype| (column.name.clone(), dtype));
        LineOptions {
            columns: self.columns.iter().map(|column| column.name.clone()).collect(),
            dtypes: self.columns.iter().filter_map(typed).collect(),
            delimiter: self.delimiter,
            no_header: self.no_header,
            ..LineOptions::default()
        }
    }
}

/// What stands behind the last colon is a type if it is the name of one, and part of the column's name if not.
fn parse_column(text: &str) -> Result<TypedName, String> {
    let typed = text.rsplit_once(':').and_then(|(name, dtype)| Some((name, DType::named(dtype)?)));
    let (name, dtype) = typed.map_or((text, None), |(name, dtype)| (name, Some(dtype)));
    Ok(TypedName { name: name.to_owned(), dtype })
}

/// A character, or "tab", which shells make hard to write.
pub fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text.as_bytes() {
        b"tab" | b"\\t" => Ok(b'\t'),
        &[byte] => Ok(byte),
        _ => Err("it is a comma, \"tab\", \";\" or \"|\"".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_types_behind_their_colons() {
        let of = |text: &str| parse_column(text).map(|column| (column.name, column.dtype)).unwrap();
        assert_eq!(of("id:i64"), ("id".into(), Some(DType::I64)));
        assert_eq!(of("a:b"), ("a:b".into(), None));
        assert_eq!(of("a:b:f32"), ("a:b".into(), Some(DType::F32)));
        assert_eq!(of("text"), ("text".into(), None));
        assert_eq!((parse_delimiter("tab"), parse_delimiter(";")), (Ok(b'\t'), Ok(b';')));
        assert!(parse_delimiter(", ").is_err());
    }
}
