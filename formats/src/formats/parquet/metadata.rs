//! The metadata of a Parquet file: its schema, and the places of the column chunks of its row groups, as its footer
//! says. Only what is used is kept.
//!
//! Source: apache/parquet-format `src/main/thrift/parquet.thrift`, `FileMetaData`.

use super::thrift::{BINARY, DEPTH_MAX, Fields, I32, LIST, Numbers, Read, STRUCT, Thrift};
use super::types::{Compression, Converted, Encoding, Logical, Physical, Primitive, Repetition, past};

/// What a footer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// The fields of the root.
    pub fields: Vec<Node>,
    /// None where columns are encrypted.
    pub groups: Vec<RowGroup>,
    /// The schema that Arrow's writers keep beside that of Parquet, as they wrote it.
    pub arrow_schema: Option<Vec<u8>>,
    pub is_encrypted: bool,
}

/// A field of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub name: String,
    pub repetition: Repetition,
    pub converted: Option<Converted>,
    pub logical: Option<Logical>,
    pub inside: Inside,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inside {
    Leaf(Primitive),
    Group(Vec<Node>),
}

impl Node {
    /// Appends the leaves of the node, in the order in which row groups list their chunks.
    pub(super) fn leaves<'a>(&'a self, to: &mut Vec<(&'a Node, Primitive)>) {
        match &self.inside {
            Inside::Leaf(primitive) => to.push((self, *primitive)),
            Inside::Group(fields) => fields.iter().for_each(|field| field.leaves(to)),
        }
    }

    /// The fields of a group; none of a leaf.
    pub(super) fn fields(&self) -> &[Node] {
        match &self.inside {
            Inside::Leaf(_) => &[],
            Inside::Group(fields) => fields,
        }
    }

    pub(super) fn is_group(&self) -> bool {
        matches!(self.inside, Inside::Group(_))
    }
}

/// A row group, with a chunk for each leaf of the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowGroup {
    pub rows: i64,
    pub chunks: Vec<ChunkMetadata>,
}

/// A column chunk. Numbers are as they are in the footer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkMetadata {
    pub is_elsewhere: bool,
    pub compression: Compression,
    pub encodings: Encodings,
    pub values: i64,
    pub decoded: i64,
    pub stored: i64,
    pub data_at: i64,
    pub dictionary_at: Option<i64>,
    /// The length of all strings, if the writer stored it.
    pub strings: Option<i64>,
}

/// A bit for each encoding, by its number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encodings(u16);

impl Encodings {
    pub fn has(self, encoding: Encoding) -> bool {
        self.0 & 1 << encoding as u16 != 0
    }

    /// By number.
    pub fn all(self) -> impl Iterator<Item = Encoding> {
        let known = (0..16).filter_map(|number| Encoding::of(number).ok());
        known.filter(move |&encoding| self.has(encoding))
    }

    fn read(at: &mut Thrift<'_>) -> Read<Encodings> {
        let mut found = 0;
        at.elements(I32, |at, _| {
            found |= 1 << Encoding::of(at.int()?)? as u16;
            Ok(())
        })?;
        Ok(Encodings(found))
    }
}

impl Metadata {
    /// Reads a footer.
    ///
    /// # Errors
    /// What is broken, and where.
    pub fn read(footer: &[u8]) -> Result<Metadata, String> {
        let mut at = Thrift(footer);
        let read = Metadata::parse(&mut at);
        read.map_err(|what| format!("{what} (before byte {} of {})", footer.len() - at.0.len(), footer.len()))
    }

    fn parse(at: &mut Thrift<'_>) -> Read<Metadata> {
        let (mut schema, mut groups, mut is_encrypted) = (None, None, false);
        let mut arrow_schema = None;
        let numbers: Numbers<4> = at.fields(Fields::of([1, 3]), |at, field, kind| {
            match (field, kind) {
                (2, LIST) if schema.is_some() => return Err("there are two schemas".into()),
                (2, LIST) => schema = Some(schema_of(at)?),
                (4, LIST) => {
                    let Some((_, leaves)) = &schema else { return Err("row groups come before the schema".into()) };
                    let mut found = Vec::new();
                    at.elements(STRUCT, |at, number| {
                        let group = RowGroup::read(at, *leaves);
                        match group.map_err(|what| format!("row group {number}: {what}"))? {
                            Some(group) => found.push(group),
                            None => is_encrypted = true,
                        }
                        Ok(())
                    })?;
                    groups = Some(found);
                }
                (5, LIST) => at.elements(STRUCT, |at, _| {
                    let (key, value) = pair(at)?;
                    arrow_schema = arrow_schema.or(value.filter(|_| key == ARROW_SCHEMA));
                    Ok(())
                })?,
                (7, LIST) | (6 | 9, BINARY) => at.skip(kind)?,
                (8, STRUCT) => {
                    is_encrypted = true;
                    at.skip(kind)?;
                }
                _ => past(at, field, kind, 9)?,
            }
            Ok(())
        })?;
        for (field, name) in [(1, "version"), (3, "number of rows")] {
            required(&numbers, field, name)?;
        }
        let (fields, _) = schema.ok_or("there is no schema")?;
        let mut groups = groups.ok_or("there is no list of row groups")?;
        if is_encrypted {
            groups.clear();
        }
        Ok(Metadata { fields, groups, arrow_schema: arrow_schema.map(<[u8]>::to_vec), is_encrypted })
    }
}

/// The key of the schema of Arrow.
const ARROW_SCHEMA: &[u8] = b"ARROW:schema";

/// A key of the writer's, and its value: text, which need not be UTF-8.
fn pair<'a>(at: &mut Thrift<'a>) -> Read<(&'a [u8], Option<&'a [u8]>)> {
    let (mut key, mut value) = (None, None);
    let _: Numbers<0> = at.fields(Fields::NONE, |at, field, kind| {
        match (field, kind) {
            (1, BINARY) => key = Some(at.bytes()?),
            (2, BINARY) => value = Some(at.bytes()?),
            _ => past(at, field, kind, 2)?,
        }
        Ok(())
    })?;
    Ok((key.ok_or("a value of the writer's has no key")?, value))
}

fn required<const COUNT: usize>(numbers: &Numbers<COUNT>, field: usize, name: &str) -> Read<i64> {
    numbers.get(field).copied().flatten().ok_or_else(|| format!("the {name} is missing"))
}

/// A node of the schema as the footer lists it: a group comes before this many children.
struct Element {
    node: Node,
    primitive: Option<Primitive>,
    has_repetition: bool,
    children: u64,
}

impl Element {
    fn read(at: &mut Thrift<'_>) -> Read<Element> {
        let (mut name, mut logical) = (None, None);
        let numbers: Numbers<10> = at.fields(Fields::of([1, 2, 3, 5, 6, 7, 8, 9]), |at, field, kind| {
            match (field, kind) {
                (4, BINARY) => name = Some(at.text()?.to_owned()),
                (10, STRUCT) => logical = Some(Logical::read(at)?),
                _ => past(at, field, kind, 10)?,
            }
            Ok(())
        })?;
        let name = name.ok_or("a node of the schema has no name")?;
        let of_node = |what: String| format!("node {name:?} of the schema: {what}");
        let number = |field: usize, what: &str| {
            let number = i32::try_from(numbers[field].unwrap_or(-1));
            number.map_err(|_| of_node(format!("its {what} has more than 31 bits")))
        };
        let physical = numbers[1].map(Physical::of).transpose().map_err(of_node)?;
        let repetition = numbers[3].map(Repetition::of).transpose().map_err(of_node)?;
        let converted = numbers[6].map(Converted::of).transpose().map_err(of_node)?;
        let children = u64::try_from(numbers[5].unwrap_or(0));
        let children = children.map_err(|_| of_node("it has fewer than 0 children".into()))?;
        let (len, scale, precision) = (number(2, "length")?, number(7, "scale")?, number(8, "precision")?);
        let primitive = physical.map(|physical| Primitive {
            physical,
            len,
            precision,
            scale,
            definition: 0,
            repetition: 0,
            element: 0,
        });
        let (has_repetition, repetition) = (repetition.is_some(), repetition.unwrap_or(Repetition::Required));
        let node = Node { name, repetition, converted, logical, inside: Inside::Group(Vec::new()) };
        Ok(Element { node, primitive, has_repetition, children })
    }
}

/// Where a node is in the tree: how many groups are around it, and the levels of [`Primitive`].
#[derive(Clone, Copy, Default)]
struct Level {
    depth: usize,
    definition: u32,
    repetition: u32,
    element: u32,
}

/// Reads the schema. Returns the fields of the root, and the number of leaves.
fn schema_of(at: &mut Thrift<'_>) -> Read<(Vec<Node>, usize)> {
    let mut elements = Vec::new();
    at.elements(STRUCT, |at, _| {
        elements.push(Element::read(at)?);
        Ok(())
    })?;
    let (mut elements, mut leaves) = (elements.into_iter(), 0);
    let root = elements.next().ok_or("the schema is empty")?;
    let fields = fields_of(root.children, Level::default(), &mut elements, &mut leaves)?;
    if elements.next().is_some() {
        return Err("the schema has two roots".into());
    }
    Ok((fields, leaves))
}

/// Takes the `children` of a group at this level. They are not believed: each must be there.
fn fields_of(
    children: u64,
    level: Level,
    elements: &mut impl Iterator<Item = Element>,
    leaves: &mut usize,
) -> Read<Vec<Node>> {
    if children > 0 && level.depth >= DEPTH_MAX {
        return Err("groups of the schema are nested too deep".into());
    }
    let mut fields = Vec::new();
    for _ in 0..children {
        let Element { mut node, primitive, has_repetition, children } =
            elements.next().ok_or("the schema ends before the last child of a group")?;
        if !has_repetition {
            return Err(format!("node {:?} of the schema does not say whether it repeats", node.name));
        }
        let mut level = Level { depth: level.depth + 1, ..level };
        level.definition += u32::from(node.repetition != Repetition::Required);
        if node.repetition == Repetition::Repeated {
            level.repetition += 1;
            level.element = level.definition;
        }
        node.inside = match primitive {
            // Some writers say that a leaf has 0 children.
            Some(primitive) if children == 0 => {
                let checked = primitive.check(node.converted, node.logical.as_ref());
                checked.map_err(|what| format!("node {:?} of the schema: {what}", node.name))?;
                *leaves += 1;
                let Level { definition, repetition, element, .. } = level;
                Inside::Leaf(Primitive { definition, repetition, element, ..primitive })
            }
            _ => Inside::Group(fields_of(children, level, elements, leaves)?),
        };
        fields.push(node);
    }
    Ok(fields)
}

impl RowGroup {
    /// Reads a row group, which has a chunk for each of that many leaves. `None` if chunks are encrypted.
    fn read(at: &mut Thrift<'_>, leaves: usize) -> Read<Option<RowGroup>> {
        let mut chunks: Option<Vec<Option<ChunkMetadata>>> = None;
        let numbers: Numbers<4> = at.fields(Fields::of([2, 3, 5, 6, 7]), |at, field, kind| {
            match (field, kind) {
                (1, LIST) => {
                    let mut listed = Vec::new();
                    at.elements(STRUCT, |at, number| {
                        let chunk = ChunkMetadata::read(at).map_err(|what| format!("column chunk {number}: {what}"))?;
                        listed.push(chunk);
                        Ok(())
                    })?;
                    chunks = Some(listed);
                }
                (4, LIST) => at.skip(kind)?,
                _ => past(at, field, kind, 7)?,
            }
            Ok(())
        })?;
        let chunks = chunks.ok_or("there is no list of column chunks")?;
        if chunks.len() != leaves {
            return Err(format!("there are {} column chunks, and the schema has {leaves} columns", chunks.len()));
        }
        required(&numbers, 2, "number of bytes")?;
        let rows = required(&numbers, 3, "number of rows")?;
        Ok(chunks.into_iter().collect::<Option<_>>().map(|chunks| RowGroup { rows, chunks }))
    }
}

impl ChunkMetadata {
    /// `None` where it is encrypted.
    fn read(at: &mut Thrift<'_>) -> Read<Option<ChunkMetadata>> {
        let (mut found, mut is_elsewhere, mut is_encrypted) = (None, false, false);
        let numbers: Numbers<3> = at.fields(Fields::of([2, 4, 5, 6, 7]), |at, field, kind| {
            match (field, kind) {
                (1, BINARY) => is_elsewhere = !at.text()?.is_empty(),
                (3, STRUCT) => found = Some(ChunkMetadata::inside(at)?),
                (8, STRUCT) | (9, BINARY) => {
                    is_encrypted = true;
                    at.skip(kind)?;
                }
                _ => past(at, field, kind, 9)?,
            }
            Ok(())
        })?;
        required(&numbers, 2, "place of its metadata")?;
        match found {
            Some(found) => Ok(Some(ChunkMetadata { is_elsewhere, ..found })),
            None if is_encrypted => Ok(None),
            None => Err("it has no metadata".into()),
        }
    }

    fn inside(at: &mut Thrift<'_>) -> Read<ChunkMetadata> {
        let (mut encodings, mut strings) = (None, None);
        let numbers: Numbers<12> = at.fields(Fields::of([1, 4, 5, 6, 7, 9, 10, 11, 14, 15]), |at, field, kind| {
            match (field, kind) {
                (2, LIST) => encodings = Some(Encodings::read(at)?),
                (3 | 8 | 13, LIST) | (12, STRUCT) => at.skip(kind)?,
                (16, STRUCT) => {
                    let numbers: Numbers<2> = at.fields(Fields::of([1]), |at, field, kind| match (field, kind) {
                        (2 | 3, LIST) => at.skip(kind),
                        _ => past(at, field, kind, 3),
                    })?;
                    strings = numbers[1];
                }
                _ => past(at, field, kind, 16)?,
            }
            Ok(())
        })?;
        Physical::of(required(&numbers, 1, "physical type")?)?;
        Ok(ChunkMetadata {
            is_elsewhere: false,
            compression: Compression::of(required(&numbers, 4, "compression")?)?,
            encodings: encodings.ok_or("the list of encodings is missing")?,
            values: required(&numbers, 5, "number of values")?,
            decoded: required(&numbers, 6, "length when it is decompressed")?,
            stored: required(&numbers, 7, "length")?,
            data_at: required(&numbers, 9, "place of its pages")?,
            dictionary_at: numbers[11],
            strings,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A structure, whose fields are in order: their numbers, types and values.
    fn fields(fields: &[(u8, u8, &[u8])]) -> Vec<u8> {
        let (mut bytes, mut before) = (Vec::new(), 0);
        for (field, kind, value) in fields {
            bytes.push((field - before) << 4 | kind);
            bytes.extend_from_slice(value);
            before = *field;
        }
        bytes.push(0);
        bytes
    }

    fn list(kind: u8, elements: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = vec![0xf0 | kind];
        let mut count = elements.len();
        while count > 0x7f {
            bytes.push(count as u8 | 0x80);
            count >>= 7;
        }
        bytes.push(count as u8);
        [bytes, elements.concat()].concat()
    }

    /// A footer without row groups, of a schema whose nodes have that many children.
    fn footer(children: &[u8]) -> Vec<u8> {
        // A number is twice as large on the wire.
        let node = |&children: &u8| {
            let kind = if children == 0 { vec![(1, I32, &[2][..])] } else { Vec::new() };
            let rest = [(3, I32, &[0][..]), (4, BINARY, &[1, b'a']), (5, I32, &[children * 2])];
            fields(&[kind, rest.to_vec()].concat())
        };
        let nodes = list(STRUCT, &children.iter().map(node).collect::<Vec<_>>());
        fields(&[(1, I32, &[2]), (2, LIST, &nodes), (3, 6, &[0]), (4, LIST, &[0x0c])])
    }

    #[test]
    fn schemas_are_trees_of_a_bounded_depth() {
        let told = |footer: &[u8]| Metadata::read(footer).map(|found| found.is_encrypted);
        let refused = |children: &[u8]| told(&footer(children)).unwrap_err();
        assert_eq!(told(&footer(&[2, 0, 1, 0])), Ok(false));
        assert!(refused(&[2, 0]).contains("the schema ends before the last child"));
        assert!(refused(&[60, 0]).contains("the schema ends before the last child"), "more children than nodes");
        assert!(refused(&[1, 0, 0]).contains("two roots"));
        let chain = |depth: usize| [vec![1; depth], vec![0]].concat();
        assert_eq!(told(&footer(&chain(DEPTH_MAX))), Ok(false));
        assert!(refused(&chain(DEPTH_MAX + 1)).contains("nested too deep"));
        assert!(told(&[0]).unwrap_err().contains("the version is missing"));
        let sound = footer(&[2, 0, 1, 0]);
        assert!((0..sound.len()).all(|len| told(&sound[..len]).is_err()));
        let encrypted = [&sound[..sound.len() - 1], &[0x4c, 0, 0]].concat();
        assert_eq!(told(&encrypted), Ok(true));
        // The number of children as a boolean, which has no value.
        let node = fields(&[(5, 1, &[])]);
        let error = told(&fields(&[(2, LIST, &list(STRUCT, &[node]))])).unwrap_err();
        assert!(error.contains("field 5 of a structure has the wrong type 1 (before byte "), "{error}");
    }

    /// A footer of one column of the type INT32, with a row group that has this chunk.
    fn with_chunk(chunk: &[(u8, u8, &[u8])]) -> Result<Metadata, String> {
        let (root, leaf) = (
            fields(&[(4, BINARY, &[1, b'r']), (5, I32, &[2])]),
            fields(&[(1, I32, &[2]), (3, I32, &[2]), (4, BINARY, &[1, b'a'])]),
        );
        let group = fields(&[(1, LIST, &list(STRUCT, &[fields(chunk)])), (2, 6, &[0]), (3, 6, &[6])]);
        let schema = list(STRUCT, &[root, leaf]);
        let groups = list(STRUCT, &[group]);
        Metadata::read(&fields(&[(1, I32, &[2]), (2, LIST, &schema), (3, 6, &[6]), (4, LIST, &groups)]))
    }

    #[test]
    fn a_chunk_has_what_is_used_of_it() {
        let numbers = |compression: &'static [u8], encoding: &[u8]| {
            fields(&[
                (1, I32, &[2]),
                (2, LIST, &list(I32, &[vec![0], encoding.to_vec()])),
                (3, LIST, &list(BINARY, &[vec![1, b'a']])),
                (4, I32, compression),
                (5, 6, &[6]),
                (6, 6, &[40]),
                (7, 6, &[20]),
                (9, 6, &[8]),
                (11, 6, &[10]),
                (16, STRUCT, &fields(&[(1, 6, &[18]), (2, LIST, &list(6, &[vec![0]]))])),
            ])
        };
        let sound = numbers(&[2], &[6]);
        let found = with_chunk(&[(2, 6, &[0]), (3, STRUCT, &sound)]).unwrap();
        let Inside::Leaf(leaf) = found.fields[0].inside else { panic!("a group") };
        assert_eq!((leaf.physical, leaf.definition, leaf.repetition), (Physical::Int32, 1, 0));
        let chunk = &found.groups[0].chunks[0];
        assert_eq!((found.groups[0].rows, chunk.compression), (3, Compression::Snappy));
        assert_eq!((chunk.values, chunk.decoded, chunk.stored), (3, 20, 10));
        assert_eq!((chunk.data_at, chunk.dictionary_at, chunk.strings), (4, Some(5), Some(9)));
        let has = |encoding| chunk.encodings.has(encoding);
        assert!(has(Encoding::Plain) && has(Encoding::Rle) && !has(Encoding::RleDictionary));
        assert!(!chunk.is_elsewhere);
        assert!(
            with_chunk(&[(1, BINARY, &[1, b'f']), (2, 6, &[0]), (3, STRUCT, &sound)]).unwrap().groups[0].chunks[0]
                .is_elsewhere
        );
        // Encryption is reported, even if nothing else of the file says so.
        let encrypted = with_chunk(&[(2, 6, &[0]), (8, STRUCT, &[0])]).unwrap();
        assert!(encrypted.is_encrypted && encrypted.groups.is_empty());
        for (chunk, what) in [
            (&[(2, 6, &[0][..])][..], "row group 0: column chunk 0: it has no metadata (before byte "),
            (&[(3, STRUCT, &sound)], "row group 0: column chunk 0: the place of its metadata is missing"),
            (&[(2, 6, &[0]), (3, STRUCT, &[0])], "column chunk 0: the physical type is missing"),
            (&[(2, 6, &[0]), (3, STRUCT, &numbers(&[16], &[0]))], "column chunk 0: there is no compression 8"),
            (&[(2, 6, &[0]), (3, STRUCT, &numbers(&[0], &[2]))], "column chunk 0: there is no encoding 1"),
        ] {
            let error = with_chunk(chunk).unwrap_err();
            assert!(error.contains(what), "{error}");
        }
    }
}
