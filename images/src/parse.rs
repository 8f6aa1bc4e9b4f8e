//! Chains as strings: `random_resized_crop(224), hflip, normalize(imagenet)`.
//!
//! A chain is operations between commas. An operation is a name, and arguments in parentheses, by place or as
//! `name=value`. Names are torchvision's, in any case, with or without underscores. A value is a number, a size `HxW`,
//! a range `low..high`, a list `0.5:0.4:0.3`, or a word.

use crate::auto::Policy;
use crate::op::{Between, Erasing, Op, Size};
use crate::{Chain, Filter};
use std::str::FromStr;
use uringload_core::{DType, Error, ErrorKind, Result};

/// The names of an operation, its arguments in order, and the function that adds it.
struct Form {
    names: &'static [&'static str],
    arguments: &'static [&'static str],
    add: fn(Chain, &Call) -> Result<Chain>,
}

const FORMS: [Form; 19] = [
    Form { names: &["resize"], arguments: &["size", "filter"], add: resize },
    Form { names: &["center_crop"], arguments: &["size"], add: center_crop },
    Form { names: &["random_crop"], arguments: &["size", "padding", "fill"], add: random_crop },
    Form {
        names: &["random_resized_crop"],
        arguments: &["size", "scale", "ratio", "filter"],
        add: random_resized_crop,
    },
    Form { names: &["hflip", "random_horizontal_flip", "horizontal_flip"], arguments: &["p"], add: hflip },
    Form { names: &["vflip", "random_vertical_flip", "vertical_flip"], arguments: &["p"], add: vflip },
    Form { names: &["pad"], arguments: &["padding", "fill"], add: pad },
    Form { names: &["rotate", "random_rotation"], arguments: &["degrees", "filter", "fill"], add: rotate },
    Form {
        names: &["affine", "random_affine"],
        arguments: &["degrees", "translate", "scale", "shear", "filter", "fill"],
        add: affine,
    },
    Form { names: &["color_jitter"], arguments: &["brightness", "contrast", "saturation", "hue"], add: color_jitter },
    Form { names: &["grayscale", "random_grayscale", "to_gray"], arguments: &["p"], add: grayscale },
    Form { names: &["gaussian_blur", "blur"], arguments: &["kernel", "sigma"], add: gaussian_blur },
    Form { names: &["random_erasing"], arguments: &["p", "scale", "ratio", "value"], add: random_erasing },
    Form { names: &["auto_augment"], arguments: &["policy"], add: auto_augment },
    Form { names: &["rand_augment"], arguments: &["ops", "magnitude"], add: rand_augment },
    Form {
        names: &["trivial_augment", "trivial_augment_wide"],
        arguments: &[],
        add: |chain, _| chain.with(Op::TrivialAugment),
    },
    Form { names: &["to_tensor"], arguments: &["dtype", "layout"], add: to_tensor },
    Form { names: &["normalize"], arguments: &["mean", "std"], add: normalize },
    Form { names: &["identity"], arguments: &[], add: |chain, _| Ok(chain) },
];

/// Means and deviations that have a name.
const STATISTICS: [(&str, [f32; 3], [f32; 3]); 4] = [
    ("imagenet", [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ("cifar10", [0.4914, 0.4822, 0.4465], [0.2470, 0.2435, 0.2616]),
    ("clip", [0.481_454_66, 0.457_827_5, 0.408_210_73], [0.268_629_54, 0.261_302_6, 0.275_777_1]),
    ("half", [0.5; 3], [0.5; 3]),
];

impl FromStr for Chain {
    type Err = Error;

    /// # Errors
    /// `InvalidArgument`, which names the character, counted from 1, and suggests a name.
    fn from_str(text: &str) -> Result<Chain> {
        let mut chain = Chain::new();
        let mut is_normalized = false;
        for call in calls(text)? {
            let form = call.form()?;
            call.check_names(form)?;
            let is_last = matches!(form.names[0], "normalize" | "random_erasing" | "to_tensor" | "identity");
            if is_normalized && !is_last {
                let what = format!("{} follows normalize, which is the last thing done to pixels", call.name);
                return Err(call.wrong(call.at, what, "write normalize after it"));
            }
            is_normalized |= form.names[0] == "normalize";
            chain = (form.add)(chain, &call).map_err(|error| call.placed(error))?;
        }
        Ok(chain)
    }
}

/// An operation as it is written.
struct Call<'a> {
    text: &'a str,
    name: &'a str,
    at: usize,
    arguments: Vec<Argument<'a>>,
}

struct Argument<'a> {
    name: Option<&'a str>,
    value: &'a str,
    at: usize,
}

/// Cuts the string into operations.
fn calls(text: &str) -> Result<Vec<Call<'_>>> {
    let mut calls = Vec::new();
    let mut at = 0;
    loop {
        let rest = &text[at..];
        let end = rest.find([',', '(', ')']).map_or(text.len(), |end| at + end);
        let (start, name) = trimmed(text, at, end);
        let mut call = Call { text, name, at: start, arguments: Vec::new() };
        if name.is_empty() {
            let is_all = text.trim().is_empty();
            let what = if is_all { "the chain is empty" } else { "an operation is missing" };
            return Err(call.wrong(start, what.into(), "write operations, such as resize(256), with commas between"));
        }
        at = end;
        if text[at..].starts_with('(') {
            let Some(close) = text[at..].find(')').map(|close| at + close) else {
                return Err(call.wrong(at, "a parenthesis is not closed".into(), "write ) after the arguments"));
            };
            call.arguments = arguments(text, at + 1, close);
            at = close + 1;
            let (next, between) = trimmed(text, at, text[at..].find(',').map_or(text.len(), |end| at + end));
            if !between.is_empty() {
                return Err(call.wrong(next, format!("{between:?} follows an operation"), "write a comma there"));
            }
            at = text[at..].find(',').map_or(text.len(), |end| at + end);
        } else if text[at..].starts_with(')') {
            return Err(call.wrong(at, "a parenthesis is closed that was not opened".into(), "leave it out"));
        }
        calls.push(call);
        if at >= text.len() {
            return Ok(calls);
        }
        // A comma, which is one byte.
        at += 1;
    }
}

fn arguments(text: &str, start: usize, close: usize) -> Vec<Argument<'_>> {
    if text[start..close].trim().is_empty() {
        return Vec::new();
    }
    let mut at = start;
    let parts = text[start..close].split(',').map(|part| {
        let (place, value) = trimmed(text, at, at + part.len());
        at += part.len() + 1;
        match value.split_once('=') {
            Some((name, value)) => {
                let from = place + name.len() + 1;
                let (place, value) = trimmed(text, from, from + value.len());
                Argument { name: Some(name.trim()), value, at: place }
            }
            None => Argument { name: None, value, at: place },
        }
    });
    parts.collect()
}

/// The text between two places without the spaces around it, and its start.
fn trimmed(text: &str, start: usize, end: usize) -> (usize, &str) {
    let part = &text[start..end];
    (start + part.len() - part.trim_start().len(), part.trim())
}

/// A name without what may be written in different ways.
fn plain(name: &str) -> String {
    name.chars().filter(|&letter| letter != '_').flat_map(char::to_lowercase).collect()
}

/// "did you mean ...?" with the most similar names first, and then all.
fn nearest(given: &str, names: &[&str]) -> String {
    let given = plain(given);
    let alike = names.iter().map(|name| (strsim::jaro_winkler(&given, &plain(name)), *name));
    let best = alike.filter(|(likeness, _)| *likeness >= 0.75).max_by(|one, other| one.0.total_cmp(&other.0));
    let meant = best.map_or(String::new(), |(_, name)| format!("did you mean {name}? "));
    format!("{meant}There are {}", names.join(", "))
}

impl Call<'_> {
    /// The error of the character at a byte of the string.
    fn wrong(&self, at: usize, what: String, remedy: impl Into<std::borrow::Cow<'static, str>>) -> Error {
        let character = self.text[..at].chars().count() + 1;
        let what = format!("{what}, at character {character} of {:?}", self.text);
        Error::new(ErrorKind::InvalidArgument, what).with_remedy(remedy)
    }

    /// An error of the operation's numbers, at its place.
    fn placed(&self, error: Error) -> Error {
        if error.what().contains(", at character ") {
            return error;
        }
        let remedy = error.remedy().map(|remedy| remedy.to_owned());
        let placed = self.wrong(self.at, format!("{}: {}", self.name, error.what()), "");
        match remedy {
            Some(remedy) => placed.with_remedy(remedy),
            None => placed,
        }
    }

    fn form(&self) -> Result<&'static Form> {
        let given = plain(self.name);
        let form = FORMS.iter().find(|form| form.names.iter().any(|name| plain(name) == given));
        form.ok_or_else(|| {
            let names: Vec<&str> = FORMS.iter().flat_map(|form| form.names.iter().take(1).copied()).collect();
            self.wrong(self.at, format!("no operation is called {:?}", self.name), nearest(self.name, &names))
        })
    }

    /// Refuses arguments that the operation lacks, and those that are given twice.
    fn check_names(&self, form: &Form) -> Result<()> {
        let mut given = Vec::new();
        for (index, argument) in self.arguments.iter().enumerate() {
            let name = match argument.name {
                Some(name) => form.arguments.iter().find(|known| plain(known) == plain(name)),
                None => form.arguments.get(index),
            };
            let Some(name) = name else {
                let remedy = match argument.name {
                    _ if form.arguments.is_empty() => "it takes none".to_owned(),
                    Some(name) => nearest(name, form.arguments),
                    None => format!("there are {}", form.arguments.join(", ")),
                };
                let shown = argument.name.unwrap_or(argument.value);
                let what = format!("{} has no argument for {shown:?}", self.name);
                let at = argument.at - argument.name.map_or(0, |name| name.len() + 1).min(argument.at);
                return Err(self.wrong(self.char_start(at), what, remedy));
            };
            if given.contains(&name) {
                return Err(self.wrong(argument.at, format!("{name} is given twice"), "give it once"));
            }
            given.push(name);
        }
        Ok(())
    }

    /// The start of the character that contains a byte.
    fn char_start(&self, at: usize) -> usize {
        (0..=at).rev().find(|&at| self.text.is_char_boundary(at)).unwrap_or(0)
    }

    fn argument(&self, wanted: &str) -> Option<&Argument<'_>> {
        let form = self.form().ok()?;
        let place = form.arguments.iter().position(|name| *name == wanted)?;
        self.arguments.iter().enumerate().find_map(|(index, argument)| match argument.name {
            Some(name) => (plain(name) == plain(wanted)).then_some(argument),
            None => (index == place).then_some(argument),
        })
    }

    /// An argument: its parsed value, or else `default`.
    fn or<T>(&self, name: &str, default: T, form: &str, make: impl Fn(&str) -> Option<T>) -> Result<T> {
        let Some(argument) = self.argument(name) else { return Ok(default) };
        make(argument.value).ok_or_else(|| {
            let what = format!("{:?} is no {name} of {}", argument.value, self.name);
            self.wrong(argument.at, what, format!("give {form}"))
        })
    }

    /// An argument that must be there.
    fn needed<T>(&self, name: &str, form: &str, make: impl Fn(&str) -> Option<T>) -> Result<T> {
        let found = self.or(name, None, form, |value| make(value).map(Some))?;
        found.ok_or_else(|| self.wrong(self.at, format!("{} has no {name}", self.name), format!("give {form}")))
    }

    fn side(&self) -> Result<(u32, u32)> {
        self.needed("size", "a side, such as 224, or rows and columns, such as 224x320", |value| match pair(value) {
            Some(size) => Some(size),
            None => value.parse().ok().map(|side| (side, side)),
        })
    }

    fn filter(&self, default: Filter) -> Result<Filter> {
        self.word(
            "filter",
            default,
            |name| Filter::ALL.into_iter().find(|filter| filter.name() == name),
            &["nearest", "box", "bilinear", "bicubic", "lanczos"],
        )
    }

    fn word<T>(&self, name: &str, default: T, make: impl Fn(&str) -> Option<T>, words: &[&str]) -> Result<T> {
        let Some(argument) = self.argument(name) else { return Ok(default) };
        make(&argument.value.to_lowercase()).ok_or_else(|| {
            let what = format!("{:?} is no {name} of {}", argument.value, self.name);
            self.wrong(argument.at, what, nearest(argument.value, words))
        })
    }

    fn number<T: FromStr>(&self, name: &str, default: T) -> Result<T> {
        self.or(name, default, "a number", |value| value.parse().ok())
    }

    fn range(&self, name: &str, default: Between) -> Result<Between> {
        self.or(name, default, "a number, or a range, such as 0.5..1.5", |value| {
            range(value).or_else(|| value.parse().ok().map(|number| (number, number)))
        })
    }

    /// A range, or a number that extends equally to both sides of `middle`, down to `least`.
    fn around(&self, name: &str, middle: f32, least: f32) -> Result<Between> {
        self.or(name, (middle, middle), "a number, or a range, such as 0.5..1.5", |value| {
            range(value).or_else(|| {
                let by: f32 = value.parse().ok()?;
                (by >= 0.0).then(|| ((middle - by).max(least), middle + by))
            })
        })
    }
}

fn pair(value: &str) -> Option<(u32, u32)> {
    let (rows, columns) = value.split_once('x')?;
    Some((rows.trim().parse().ok()?, columns.trim().parse().ok()?))
}

fn range(value: &str) -> Option<Between> {
    let (low, high) = value.split_once("..")?;
    Some((low.trim().parse().ok()?, high.trim().parse().ok()?))
}

fn list(value: &str) -> Option<Vec<f32>> {
    value.split(':').map(|number| number.trim().parse().ok()).collect()
}

fn resize(chain: Chain, call: &Call) -> Result<Chain> {
    let form = "the shorter side, such as 256, or rows and columns, such as 256x320";
    let size = call.needed("size", form, |value| match pair(value) {
        Some((height, width)) => Some(Size::Exact(height, width)),
        None => value.parse().ok().map(Size::Shorter),
    })?;
    chain.with(Op::Resize { size, filter: call.filter(Filter::Bilinear)? })
}

fn center_crop(chain: Chain, call: &Call) -> Result<Chain> {
    let (height, width) = call.side()?;
    chain.with(Op::CenterCrop { height, width })
}

fn random_crop(chain: Chain, call: &Call) -> Result<Chain> {
    let (height, width) = call.side()?;
    let (padding, fill) = (call.number("padding", 0)?, call.number("fill", 0)?);
    chain.with(Op::RandomCrop { height, width, padding, fill })
}

fn random_resized_crop(chain: Chain, call: &Call) -> Result<Chain> {
    let (height, width) = call.side()?;
    let (scale, ratio) = (call.range("scale", (0.08, 1.0))?, call.range("ratio", (3.0 / 4.0, 4.0 / 3.0))?);
    chain.with(Op::RandomResizedCrop { height, width, scale, ratio, filter: call.filter(Filter::Bilinear)? })
}

fn hflip(chain: Chain, call: &Call) -> Result<Chain> {
    chain.with(Op::HorizontalFlip { p: call.number("p", 0.5)? })
}

fn vflip(chain: Chain, call: &Call) -> Result<Chain> {
    chain.with(Op::VerticalFlip { p: call.number("p", 0.5)? })
}

fn pad(chain: Chain, call: &Call) -> Result<Chain> {
    let padding = call.needed("padding", "a number, or left:top:right:bottom", |value| {
        let numbers: Option<Vec<u32>> = value.split(':').map(|number| number.trim().parse().ok()).collect();
        match numbers?[..] {
            [all] => Some([all; 4]),
            [sides, ends] => Some([sides, ends, sides, ends]),
            [left, top, right, bottom] => Some([left, top, right, bottom]),
            _ => None,
        }
    })?;
    chain.with(Op::Pad { padding, fill: call.number("fill", 0)? })
}

fn rotate(chain: Chain, call: &Call) -> Result<Chain> {
    let degrees = call.around("degrees", 0.0, f32::MIN)?;
    chain.with(Op::Rotate { degrees, filter: call.filter(Filter::Nearest)?, fill: call.number("fill", 0)? })
}

fn affine(chain: Chain, call: &Call) -> Result<Chain> {
    let translate =
        call.or("translate", (0.0, 0.0), "a share, or two, such as 0.1:0.2", |value| match list(value)?[..] {
            [both] => Some((both, both)),
            [x, y] => Some((x, y)),
            _ => None,
        })?;
    chain.with(Op::Affine {
        degrees: call.around("degrees", 0.0, f32::MIN)?,
        translate,
        scale: call.range("scale", (1.0, 1.0))?,
        shear: call.around("shear", 0.0, f32::MIN)?,
        filter: call.filter(Filter::Nearest)?,
        fill: call.number("fill", 0)?,
    })
}

fn color_jitter(chain: Chain, call: &Call) -> Result<Chain> {
    chain.with(Op::ColorJitter {
        brightness: call.around("brightness", 1.0, 0.0)?,
        contrast: call.around("contrast", 1.0, 0.0)?,
        saturation: call.around("saturation", 1.0, 0.0)?,
        hue: call.around("hue", 0.0, f32::MIN)?,
    })
}

fn grayscale(chain: Chain, call: &Call) -> Result<Chain> {
    let default = if plain(call.name) == "randomgrayscale" { 0.1 } else { 1.0 };
    chain.with(Op::Grayscale { p: call.number("p", default)? })
}

fn gaussian_blur(chain: Chain, call: &Call) -> Result<Chain> {
    let kernel = call.needed("kernel", "an odd number of pixels", |value| value.parse().ok())?;
    chain.with(Op::GaussianBlur { kernel, sigma: call.range("sigma", (0.1, 2.0))? })
}

fn random_erasing(chain: Chain, call: &Call) -> Result<Chain> {
    let value = call.or("value", Erasing::Value(0.0), "a number, or random", |value| match value {
        "random" => Some(Erasing::Random),
        value => value.parse().ok().map(Erasing::Value),
    })?;
    let (scale, ratio) = (call.range("scale", (0.02, 0.33))?, call.range("ratio", (0.3, 3.3))?);
    chain.with(Op::RandomErasing { p: call.number("p", 0.5)?, scale, ratio, value })
}

fn auto_augment(chain: Chain, call: &Call) -> Result<Chain> {
    let policy = |name: &str| match name {
        "imagenet" => Some(Policy::ImageNet),
        "cifar10" => Some(Policy::Cifar10),
        "svhn" => Some(Policy::Svhn),
        _ => None,
    };
    chain.with(Op::AutoAugment(call.word("policy", Policy::ImageNet, policy, &["imagenet", "cifar10", "svhn"])?))
}

fn rand_augment(chain: Chain, call: &Call) -> Result<Chain> {
    chain.with(Op::RandAugment { ops: call.number("ops", 2)?, magnitude: call.number("magnitude", 9)? })
}

fn to_tensor(chain: Chain, call: &Call) -> Result<Chain> {
    let dtype = call.word("dtype", DType::F32, DType::named, &["f32", "f16", "bf16", "u8"])?;
    let channels_last = |layout: &str| match layout {
        "chw" => Some(false),
        "hwc" => Some(true),
        _ => None,
    };
    let channels_last = call.word("layout", false, channels_last, &["chw", "hwc"])?;
    Ok(chain.dtype(dtype)?.channels_last(channels_last))
}

fn normalize(chain: Chain, call: &Call) -> Result<Chain> {
    if let Some(argument) = call.argument("mean") {
        let word = argument.value.to_lowercase();
        if let Some((_, mean, std)) = STATISTICS.iter().find(|(name, ..)| *name == word) {
            return chain.normalize(mean, std);
        }
        if word.starts_with(char::is_alphabetic) {
            let names = STATISTICS.map(|(name, ..)| name);
            let what = format!("{:?} has no known mean and deviation", argument.value);
            return Err(call.wrong(argument.at, what, nearest(argument.value, &names)));
        }
    }
    let form = "a number, or one for each channel, such as 0.485:0.456:0.406, or imagenet";
    let mean = call.needed("mean", form, list)?;
    let std = call.or("std", vec![1.0], form, list)?;
    chain.normalize(&mean, &std)
}

#[cfg(test)]
mod tests;
