//! `tashika mail`: what mails say, without sending any.

use std::io::Write;

use anyhow::{Context as _, bail};
use serde_json::Value;
use tashika_providers::templates::Templates;

use crate::cli::mail::{MailArgs, MailCommand};

pub fn mail(args: MailArgs, out: &mut impl Write) -> anyhow::Result<()> {
    let templates = Templates::load(args.templates.as_deref())?;
    match args.command {
        MailCommand::Templates => list(&templates, out),
        MailCommand::Preview { template, locale, data, html, text } => {
            let Some(first) = templates.locales(&template).next() else {
                let names = templates.names().collect::<Vec<_>>().join(", ");
                bail!("there is no template `{template}`; there are {names}");
            };
            let data: Value = match data {
                Some(path) => {
                    let text = std::fs::read_to_string(&path)
                        .with_context(|| path.display().to_string())?;
                    serde_json::from_str(&text).with_context(|| path.display().to_string())?
                }
                None => templates.sample(&template).cloned().unwrap_or_default(),
            };
            let mail = templates.render(&template, locale.unwrap_or(first), &data)?;
            if html {
                writeln!(out, "{}", mail.html)?;
            } else if text {
                writeln!(out, "{}", mail.text)?;
            } else {
                writeln!(out, "Subject: {}\n\n{}", mail.subject, mail.text)?;
            }
            Ok(())
        }
    }
}

fn list(templates: &Templates, out: &mut impl Write) -> anyhow::Result<()> {
    for name in templates.names() {
        let locales: Vec<_> = templates.locales(name).map(|locale| locale.to_string()).collect();
        writeln!(out, "{name} ({})", locales.join(", "))?;
        for variable in templates.variables(name)? {
            match variable.meaning {
                Some(meaning) => writeln!(out, "  {}: {meaning}", variable.name)?,
                None => writeln!(out, "  {}", variable.name)?,
            }
        }
    }
    Ok(())
}
