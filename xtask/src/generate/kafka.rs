//! What is taken from Apache Kafka's published artifacts: fetched by Maven into a cache outside the tree, never committed.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::run::cache_dir;

/// The release whose protocol we speak.
pub(super) const VERSION: &str = "4.4.0";

/// Artifacts with message specifications: the protocol, the group records, the transaction records.
const WITH_SPECS: [&str; 3] = ["kafka-clients", "kafka-group-coordinator", "kafka-transaction-coordinator"];

/// Where fetched artifacts are kept between runs.
pub(super) fn cache() -> PathBuf {
    cache_dir().join(format!("kafka-{VERSION}"))
}

/// The folder with the message specifications, one JSON file a message.
pub(super) fn specs() -> Result<PathBuf> {
    let dir = cache().join("specs");
    let complete = dir.join("complete");
    if !complete.exists() {
        for artifact in WITH_SPECS {
            maven(&[
                "dependency:unpack",
                &format!("-Dartifact=org.apache.kafka:{artifact}:{VERSION}"),
                &format!("-DoutputDirectory={}", dir.display()),
                "-Dmdep.unpack.includes=common/message/*.json",
            ])?;
        }
        fs::write(complete, "")?;
    }
    let messages = dir.join("common").join("message");
    ensure!(messages.is_dir(), "{} has no common/message: delete it and run this again", dir.display());
    Ok(messages)
}

/// The class path of the artifacts with specifications and all they depend on.
pub(super) fn class_path() -> Result<String> {
    let path = cache().join("class-path");
    if !path.exists() {
        let dependency = |artifact| {
            format!(
                "<dependency><groupId>org.apache.kafka</groupId><artifactId>{artifact}</artifactId><version>{VERSION}</version></dependency>"
            )
        };
        let project = format!(
            "<project><modelVersion>4.0.0</modelVersion><groupId>forebay</groupId><artifactId>oracle</artifactId>\
             <version>1</version><dependencies>{}</dependencies></project>",
            WITH_SPECS.map(dependency).concat()
        );
        let pom = cache().join("oracle.xml");
        fs::create_dir_all(cache())?;
        fs::write(&pom, project)?;
        let pom = format!("--file={}", pom.display());
        maven(&[&pom, "dependency:build-classpath", &format!("-Dmdep.outputFile={}", path.display())])?;
    }
    Ok(fs::read_to_string(path)?)
}

/// Runs Maven quietly, outside of our project.
pub(super) fn maven(arguments: &[&str]) -> Result<()> {
    let dir = cache();
    fs::create_dir_all(&dir)?;
    let output = Command::new("mvn")
        .args(["--quiet", "--batch-mode"])
        .args(arguments)
        .current_dir(&dir)
        .output()
        .context("run mvn: Maven and a Java runtime are needed to generate")?;
    if !output.status.success() {
        bail!("mvn {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stdout).trim());
    }
    Ok(())
}
