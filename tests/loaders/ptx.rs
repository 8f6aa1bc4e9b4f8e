//! PTX as C++: a function for each kernel and a call for each instruction, of the functions in `sys/kernels/ptx.h`.
//!
//! It takes what `kernels.ptx` has: straight code with labels and predicates, and neither calls, barriers, shared
//! memory nor atomics. Whatever else is there becomes C++ that does not compile.

use std::fmt::Write as _;

/// The start of a kernel.
const ENTRY: &str = ".visible .entry ";

/// The type of a register, a parameter or an immediate in C++.
fn cpp_type(ptx: &str) -> &'static str {
    match ptx {
        "pred" => "bool",
        "f32" => "float",
        "b16" | "u16" => "u16",
        "b32" | "u32" => "u32",
        "b64" | "u64" => "u64",
        other => panic!("no kernel has used the type .{other} so far"),
    }
}

/// All kernels of a PTX file as functions that take their parameters and run one thread each.
pub fn as_cpp(ptx: &str) -> String {
    let mut cpp = String::from("// Made from PTX by tests/loaders/ptx.rs.\n#include \"ptx.h\"\n");
    for kernel in ptx.split(ENTRY).skip(1) {
        let (name, rest) = kernel.split_once('(').expect("parameters follow the name");
        let (parameters, rest) = rest.split_once(')').expect("the list of parameters ends");
        let (_, rest) = rest.split_once('{').expect("a body follows");
        let (body, _) = rest.rsplit_once('}').expect("the body ends");
        let parameters = parameters.split(',').map(|parameter| {
            let words: Vec<&str> = parameter.split_whitespace().collect();
            let [".param", kind, name] = words[..] else { panic!("{name} has the parameter {parameter:?}") };
            format!("{} {name}", cpp_type(&kind[1..]))
        });
        let parameters = parameters.collect::<Vec<_>>().join(", ");
        writeln!(cpp, "static void {name}({parameters}) {{").expect("a String takes everything");
        let (registers, code) = statements(body);
        // A goto may not pass a declaration, so all of them come first.
        for line in registers.iter().chain(&code) {
            writeln!(cpp, "    {line}").expect("a String takes everything");
        }
        cpp.push_str("}\n");
    }
    cpp
}

/// The same file, in which only the kernel of this name does anything, so that it compiles faster.
pub fn only(ptx: &str, wanted: &str) -> String {
    let mut kernels = ptx.split(ENTRY);
    let mut left = kernels.next().unwrap_or_default().to_owned();
    for kernel in kernels {
        let (head, body) = kernel.split_once('{').expect("a body follows the parameters");
        let body = if head.starts_with(&format!("{wanted}(")) { body } else { " ret; }\n" };
        left.extend([ENTRY, head, "{", body]);
    }
    left
}

/// The names of all kernels of a PTX file.
pub fn names(ptx: &str) -> Vec<&str> {
    ptx.split(ENTRY).skip(1).filter_map(|kernel| Some(kernel.split_once('(')?.0)).collect()
}

/// The declarations of a body's registers, and its code.
fn statements(body: &str) -> (Vec<String>, Vec<String>) {
    let (mut registers, mut code) = (Vec::new(), Vec::new());
    let lines = body.lines().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    for statement in lines.split_inclusive([';', ':', '{', '}']) {
        let statement = statement.trim();
        if let Some(label) = statement.strip_suffix(':') {
            code.push(format!("{}:;", label.trim().trim_start_matches('$')));
            continue;
        }
        code.push(statement.to_owned());
    }
    // Braces within a statement are those of vectors, and a statement goes on behind them.
    let joined = code.join(" ");
    let mut code = Vec::new();
    for statement in joined.split(';') {
        let statement = statement.split_whitespace().collect::<Vec<_>>().join(" ");
        let statement = statement.trim_start_matches(['{', '}', ' ']);
        if statement.is_empty() || statement.starts_with(".pragma") {
            continue;
        }
        if let Some(label) = statement.strip_suffix(':') {
            code.push(format!("{label}:;"));
        } else if let Some(declared) = statement.strip_prefix(".reg .") {
            registers.push(declaration(declared));
        } else {
            code.push(instruction(statement));
        }
    }
    registers.sort();
    registers.dedup();
    (registers, code)
}

/// `b32 %r<17>` declares `%r0` to `%r16`, and `b64 %lhs` one.
fn declaration(declared: &str) -> String {
    let (kind, name) = declared.split_once(' ').expect("a type and a name");
    let name = name.trim().trim_start_matches('%');
    let names: Vec<String> = match name.split_once('<') {
        Some((prefix, count)) => {
            let count: u32 = count.trim_end_matches('>').parse().expect("the number of registers");
            (0..count).map(|index| format!("{prefix}{index} = 0")).collect()
        }
        None => vec![format!("{name} = 0")],
    };
    format!("{} {};", cpp_type(kind), names.join(", "))
}

/// `@%p1 add.s32 %r1, %r2, -1` becomes `if (p1) add_s32(r1, r2, ...);`.
fn instruction(statement: &str) -> String {
    let (condition, statement) = match statement.strip_prefix('@').and_then(|guarded| guarded.split_once(' ')) {
        Some((guard, rest)) => (format!("if ({}) ", guard.replace('%', "")), rest),
        None => (String::new(), statement),
    };
    let (name, operands) = statement.split_once(' ').unwrap_or((statement, ""));
    let what = match name {
        "ret" => "return;".to_owned(),
        "bra" | "bra.uni" => format!("goto {};", operands.trim().trim_start_matches('$')),
        _ => {
            let operands: Vec<String> = split(operands).into_iter().map(operand).collect();
            match name.strip_prefix("ld.param.") {
                Some(_) => format!("{} = {};", operands[0], operands[1]),
                None => format!("{}({});", name.replace('.', "_"), operands.join(", ")),
            }
        }
    };
    condition + &what
}

/// Operands between commas that are not in braces.
fn split(operands: &str) -> Vec<&str> {
    let mut depth = 0;
    let parts = operands.split(move |letter| {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        letter == ',' && depth == 0
    });
    parts.map(str::trim).collect()
}

fn operand(text: &str) -> String {
    if let Some(list) = text.strip_prefix('{').and_then(|list| list.strip_suffix('}')) {
        let list: Vec<String> = list.split(',').map(|text| operand(text.trim())).collect();
        return format!("braces({})", list.join(", "));
    }
    if let Some(place) = text.strip_prefix('[').and_then(|place| place.strip_suffix(']')) {
        return match place.split_once('+') {
            Some((base, offset)) => format!("{} + {}", operand(base.trim()), operand(offset.trim())),
            None => operand(place.trim()),
        };
    }
    match text {
        "%tid.x" => "threadIdx.x".to_owned(),
        "%ntid.x" => "blockDim.x".to_owned(),
        "%ctaid.x" => "blockIdx.x".to_owned(),
        "%ctaid.y" => "blockIdx.y".to_owned(),
        "%nctaid.x" => "gridDim.x".to_owned(),
        "%nctaid.y" => "gridDim.y".to_owned(),
        _ if text.starts_with('%') => text.replace('%', ""),
        _ => match text.strip_prefix("0f") {
            Some(bits) => format!("__uint_as_float(0x{bits}u)"),
            // Any 64 bits, made narrower by the function that takes them.
            None => {
                text.parse::<i128>().map_or_else(|_| text.to_owned(), |number| format!("i64({:#x}ull)", number as u64))
            }
        },
    }
}
