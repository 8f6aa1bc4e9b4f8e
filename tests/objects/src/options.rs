//! What the server is told at its start, and of that what it can be told later.

use crate::fault::{self, Fault};
use std::path::PathBuf;
use std::time::Duration;

/// The options, a line each. What has none here is no option.
const USAGE: &str = "\
usage: uringload-objects [--root DIR] [--synthetic N:SIZE] [OPTION VALUE]...

  --root DIR             folders of DIR are buckets, files below them objects
  --synthetic N:SIZE     a bucket `synthetic` of N objects of SIZE bytes, a function of key and offset
  --listen HOST:PORT     where to listen (127.0.0.1:0: any port)
  --tls KIND             serve HTTPS with a certificate made now: good, expired, or other-name
  --cert-out FILE        write the certificate there, as PEM
  --keys ID:SECRET       check signatures (SigV4); may be given again
  --token-until TOKEN:S  a session token that expires S seconds after the start; may be given again
  --clock SECONDS        how far the server's clock is ahead
  --region NAME          send requests that are signed for another region to this one (301)
These can be set while it runs too, by /_fault?NAME=VALUE&...:
  --fault KIND=PERCENT[:ARG],...   answer that share of requests wrongly
  --verbs VERB,...       the requests that may be answered wrongly (GET), as /_stats counts them
  --attempts N           only the first N attempts at a range are (0: all)
  --seed N               which requests are
  --delay-ms N           before each first byte
  --limit N              answer 503 to more than N requests at once (0: no limit)
  --bandwidth N          bytes per second of a connection (0: no limit)
KINDs:";

/// The requests by name, as the statistics count them.
const VERBS: [&str; 12] =
    ["ABORT", "BUCKET", "BUCKETS", "COMPLETE", "CREATE", "DELETE", "GET", "HEAD", "LIST", "OTHER", "PART", "PUT"];

fn usage() -> String {
    format!("{USAGE}\n{}", fault::usage())
}

/// Everything that the server can be told.
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(crate) root: Option<PathBuf>,
    pub(crate) synthetic: Option<(u64, u64)>,
    pub(crate) listen: Option<String>,
    pub(crate) tls: Option<Certificate>,
    pub(crate) cert_out: Option<PathBuf>,
    pub(crate) keys: Vec<(String, String)>,
    pub(crate) tokens: Vec<(String, u64)>,
    pub(crate) clock: u64,
    pub(crate) region: Option<String>,
    pub(crate) tuning: Tuning,
}

/// What kind of certificate the server shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certificate {
    Good,
    Expired,
    OtherName,
}

/// What can change while the server runs.
#[derive(Clone, Debug)]
pub struct Tuning {
    pub faults: Vec<Fault>,
    pub verbs: Vec<String>,
    pub attempts: u64,
    pub seed: u64,
    pub delay: Duration,
    pub limit: usize,
    pub bandwidth: u64,
}

impl Options {
    /// Reads the arguments of the command line, without the command itself.
    ///
    /// # Errors
    /// Says which argument is wrong, and how it should be.
    pub fn parse<S: AsRef<str>>(arguments: impl IntoIterator<Item = S>) -> Result<Options, String> {
        let mut options = Options::default();
        let mut arguments = arguments.into_iter();
        while let Some(name) = arguments.next() {
            let name = name.as_ref();
            let plain = name.strip_prefix("--").ok_or_else(|| format!("{name:?} is no option\n\n{}", usage()))?;
            if plain == "help" {
                return Err(usage());
            }
            let value = arguments.next();
            options.set(plain, value.as_ref().map(AsRef::as_ref))?;
        }
        if options.root.is_none() && options.synthetic.is_none() {
            return Err(format!("nothing to serve: give --root or --synthetic\n\n{}", usage()));
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        if !USAGE.contains(&format!("--{name} ")) {
            return Err(format!("there is no option --{name}\n\n{}", usage()));
        }
        let value = value.ok_or_else(|| format!("--{name} needs a value"))?;
        let pair = || value.split_once(':').filter(|(one, _)| !one.is_empty());
        let pair = |form: &str| pair().ok_or_else(|| format!("--{name} {value}: it should be {form}"));
        match name {
            "root" => self.root = Some(PathBuf::from(value)),
            "synthetic" => {
                let (count, size) = pair("N:SIZE")?;
                self.synthetic = Some((number(name, count)?, number(name, size)?));
            }
            "listen" => self.listen = Some(value.to_owned()),
            "tls" => {
                self.tls = Some(match value {
                    "good" => Certificate::Good,
                    "expired" => Certificate::Expired,
                    "other-name" => Certificate::OtherName,
                    _ => return Err(format!("--tls {value}: it should be good, expired or other-name")),
                });
            }
            "cert-out" => self.cert_out = Some(PathBuf::from(value)),
            "keys" => {
                let (id, secret) = pair("ID:SECRET")?;
                self.keys.push((id.to_owned(), secret.to_owned()));
            }
            "token-until" => {
                let (token, seconds) = pair("TOKEN:SECONDS")?;
                self.tokens.push((token.to_owned(), number(name, seconds)?));
            }
            "clock" => self.clock = number(name, value)?,
            "region" => self.region = Some(value.to_owned()),
            _ => self.tuning.set(name, value)?,
        }
        Ok(())
    }
}

impl Default for Tuning {
    fn default() -> Tuning {
        let verbs = vec!["GET".to_owned()];
        Tuning { faults: Vec::new(), verbs, attempts: 0, seed: 0, delay: Duration::ZERO, limit: 0, bandwidth: 0 }
    }
}

impl Tuning {
    /// Sets what the option `name` stands for.
    ///
    /// # Errors
    /// Says what is wrong with the name or the value.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "fault" => self.faults = fault::parse(value)?,
            "verbs" => {
                if let Some(wrong) = value.split(',').find(|verb| !VERBS.contains(verb)) {
                    return Err(format!("--verbs: there is no {wrong:?}; there are {}", VERBS.join(", ")));
                }
                self.verbs = value.split(',').map(str::to_owned).collect();
            }
            "attempts" => self.attempts = number(name, value)?,
            "seed" => self.seed = number(name, value)?,
            "delay-ms" => self.delay = Duration::from_millis(number(name, value)?),
            "limit" => self.limit = number(name, value)?,
            "bandwidth" => self.bandwidth = number(name, value)?,
            _ => return Err(format!("{name} cannot be set while the server runs")),
        }
        Ok(())
    }
}

fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("--{name}: {value:?} is no whole number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_options_are_told() {
        let wrong: [(&[&str], &str); 10] = [
            (&[], "nothing to serve"),
            (&["x"], "\"x\" is no option"),
            (&["--rot", "x"], "there is no option --rot"),
            (&["--root"], "--root needs a value"),
            (&["--synthetic", "5"], "it should be N:SIZE"),
            (&["--synthetic", "5:x"], "\"x\" is no whole number"),
            (&["--tls", "bad"], "good, expired or other-name"),
            (&["--keys", ":"], "ID:SECRET"),
            (&["--delay-ms", "-1"], "no whole number"),
            (&["--verbs", "GET,get"], "there is no \"get\""),
        ];
        for (arguments, told) in wrong {
            let error = Options::parse(arguments).unwrap_err();
            assert!(error.contains(told), "{arguments:?}: {error}");
        }
        assert!(Tuning::default().set("root", "x").unwrap_err().contains("cannot be set"));
    }
}
