//! The disturbances themselves: each changes something or breaks something, sees it happen, sees it healed, and ends a stage of the load.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use forebay_crds::Cluster;
use forebay_crds::cluster::TuningCheck;
use forebay_e2e::conditions::condition;
use forebay_e2e::next_image;
use forebay_e2e::nodes::Evicted;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod as KubePod};
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::brokers::{Brokers, CLUSTER, another_serves, claim, pod, replaced, two_serve_while, uids};

impl Brokers<'_> {
    async fn change(&self, what: &str, spec: Value) -> Result<()> {
        self.story.step(what);
        self.story.merge::<Cluster>(CLUSTER, json!({ "spec": spec })).await.map(drop)
    }

    /// A roll of all brokers, to its end.
    async fn roll(&self) -> Result<()> {
        let old = uids(self.story).await?;
        two_serve_while(self.story, async {
            replaced(self.story, &old, 1).await?;
            self.middle().await?;
            replaced(self.story, &old, 3).await
        })
        .await
    }

    /// On each broker, that is in force what the spec says of these settings.
    async fn in_force(&self, settings: &[(&str, &str)]) -> Result<()> {
        let holds = |checks: &[TuningCheck], (setting, wanted): &(&str, &str)| {
            checks.iter().any(|check| check.setting == *setting && check.wanted == *wanted && check.holds)
        };
        let what = format!("in force on all brokers: {settings:?}");
        self.story
            .expect(CLUSTER, &what, 60, |cluster: &Cluster| {
                let brokers = cluster.status.as_ref().map(|status| status.brokers.as_slice()).unwrap_or_default();
                ensure!(brokers.len() == 3, "{} brokers", brokers.len());
                for broker in brokers {
                    let all = settings.iter().all(|setting| holds(&broker.tuning, setting));
                    ensure!(all, "broker {}: {:?}", broker.id, broker.tuning);
                }
                Ok(())
            })
            .await
    }

    pub(crate) async fn roll_to_another_image(&mut self) -> Result<()> {
        let next = next_image("forebay-broker");
        self.change(&format!("the brokers' image becomes {next}"), json!({ "image": next })).await?;
        self.roll().await?;
        for id in 0..3 {
            let pod = self.story.api::<KubePod>().get(&pod(id)).await?;
            let image = pod.spec.as_ref().and_then(|spec| spec.containers.first()?.image.clone());
            ensure!(image.as_ref() == Some(&next), "broker {id} has {image:?}");
        }
        self.healed("image upgrade roll").await
    }

    pub(crate) async fn roll_for_a_setting(&mut self) -> Result<()> {
        let config = json!({"config": {"num.recovery.threads.per.data.dir": 3}});
        self.change("a setting changes that brokers read when they start", config).await?;
        self.roll().await?;
        self.healed("config roll").await
    }

    pub(crate) async fn take_threads_and_files(&mut self) -> Result<()> {
        let change = json!({"threads": {"network": 2, "io": 5}, "ulimits": {"nofile": 4097}});
        self.change("threads and open files change", change).await?;
        self.roll().await?;
        self.in_force(&[("network threads", "2"), ("io threads", "5"), ("nofile", "4097")]).await?;
        self.healed("threads and nofile changed").await
    }

    pub(crate) async fn grow_their_disks(&mut self) -> Result<()> {
        let before = uids(self.story).await?;
        let disks = json!({"disks": [{"name": "data", "size": "11Gi", "mountOptions": ["noatime"]}]});
        self.change("disks grow from 10Gi to 11Gi", disks).await?;
        self.middle().await?;
        for id in 0..3 {
            let name = claim(id);
            self.story
                .expect(&name, &format!("{name} has 11Gi"), 90, |claim: &PersistentVolumeClaim| {
                    let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
                    let storage = capacity.and_then(|capacity| capacity.get("storage")).context("no capacity")?;
                    ensure!(storage.0 == "11Gi", "it has {}", storage.0);
                    Ok(())
                })
                .await?;
        }
        self.story
            .expect(&format!("{CLUSTER}-broker"), "so do brokers to come", 90, |set: &StatefulSet| {
                let set = serde_json::to_value(set)?;
                let size = &set["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"];
                ensure!(size == "11Gi", "the claim template has {size}");
                Ok(())
            })
            .await?;
        self.story.expect_condition::<Cluster>(CLUSTER, "DisksInForce", "True", 60).await?;
        self.healed("disks grown").await?;
        ensure!(uids(self.story).await? == before, "no broker was restarted for it");
        Ok(())
    }

    pub(crate) async fn become_five(&mut self) -> Result<()> {
        self.change("two brokers more", json!({"replicas": 5})).await?;
        self.progresses("Rebalancing").await?;
        self.middle().await?;
        self.healed("scale 3 to 5").await?;
        let counts = self.story.kafka(CLUSTER).replicas().await?;
        let share = counts.values().sum::<usize>() / 5;
        let filled = (0..5).all(|id| counts.get(&id).is_some_and(|count| count * 2 >= share));
        ensure!(filled, "the new brokers have their share of the replicas: {counts:?}");
        self.story.step(&format!("replicas by broker: {counts:?}"));
        Ok(())
    }

    pub(crate) async fn become_three(&mut self) -> Result<()> {
        self.change("two brokers fewer", json!({"replicas": 3})).await?;
        self.progresses("ScalingDown").await?;
        self.middle().await?;
        for id in 3..5 {
            self.story.expect_gone::<KubePod>(&pod(id), 240).await?;
        }
        self.healed("scale 5 to 3").await?;
        let kafka = self.story.kafka(CLUSTER);
        self.story
            .eventually("the brokers that went are on no list any more", 60, async || {
                let counts = kafka.replicas().await?;
                ensure!(counts.keys().eq([0, 1, 2].iter()), "{counts:?}");
                Ok(())
            })
            .await
    }

    async fn progresses(&self, reason: &str) -> Result<()> {
        self.story
            .expect(CLUSTER, &format!("the Cluster says {reason}"), 120, |cluster: &Cluster| {
                let progressing = condition(cluster, "Progressing")?;
                ensure!(progressing.status == "True" && progressing.reason == reason, "{progressing:?}");
                Ok(())
            })
            .await
    }

    pub(crate) async fn meet_a_bad_image(&mut self) -> Result<()> {
        let now = self.story.api::<Cluster>().get(CLUSTER).await?.spec.image;
        self.change("an image that is nowhere", json!({"image": "forebay.local/no-such-broker:1"})).await?;
        let one_victim = |cluster: &Cluster| {
            let ready = condition(cluster, "Ready")?;
            ensure!(ready.status == "False" && ready.message.contains("Image"), "{ready:?}");
            let running = cluster.status.as_ref().and_then(|status| status.ready_replicas);
            ensure!(running == Some(2), "{running:?} are ready");
            Ok(())
        };
        two_serve_while(self.story, async {
            let what = "it costs one broker, and Ready says why";
            self.story.expect(CLUSTER, what, 120, one_victim).await?;
            self.middle().await?;
            // Long enough for a second one, would it be taken.
            tokio::time::sleep(Duration::from_secs(20)).await;
            self.story.expect(CLUSTER, "and no more than one", 60, one_victim).await
        })
        .await?;
        self.change("the image is put back", json!({ "image": now })).await?;
        self.healed("bad image, then revert").await
    }

    pub(crate) async fn lose_a_pod(&mut self) -> Result<()> {
        let (pods, name) = (self.story.api::<KubePod>(), pod(0));
        let old = pods.get(&name).await?.uid();
        self.story.step(&format!("{name} is deleted at once"));
        pods.delete(&name, &DeleteParams::default().grace_period(0)).await?;
        self.middle().await?;
        another_serves(self.story, &name, old.as_deref()).await?;
        self.healed("pod deleted").await
    }

    pub(crate) async fn lose_a_pod_and_its_claim(&mut self) -> Result<()> {
        let (pods, claims) = (self.story.api::<KubePod>(), self.story.api::<PersistentVolumeClaim>());
        let (pod, claim) = (pod(2), claim(2));
        let (old, old_claim) = (pods.get(&pod).await?.uid(), claims.get(&claim).await?.uid());
        self.story.step(&format!("{pod} loses its pod and its disk"));
        claims.delete(&claim, &DeleteParams::default()).await?;
        pods.delete(&pod, &DeleteParams::default().grace_period(0)).await?;
        self.middle().await?;
        self.story
            .expect(&claim, "it gets another disk", 120, |claim: &PersistentVolumeClaim| {
                let phase = claim.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
                ensure!(claim.uid() != old_claim && phase == "Bound", "it is the old one or {phase}");
                Ok(())
            })
            .await?;
        another_serves(self.story, &pod, old.as_deref()).await?;
        self.healed("pod and claim deleted").await
    }

    pub(crate) async fn lose_one_of_two_that_are_evicted(&mut self) -> Result<()> {
        let pods = self.story.api::<KubePod>();
        let old = (pods.get(&pod(1)).await?.uid(), pods.get(&pod(2)).await?.uid());
        let (one, two) = (pod(1), pod(2));
        let (first, second) = tokio::join!(self.story.evict(&one), self.story.evict(&two));
        let (evicted, old) = match (first?, second?) {
            (Evicted::Yes, Evicted::NotNow) => (one, old.0),
            (Evicted::NotNow, Evicted::Yes) => (two, old.1),
            other => anyhow::bail!("of two evictions at once one is let through, not {other:?}"),
        };
        self.story.step(&format!("of two evictions at once that of {evicted} is let through"));
        self.middle().await?;
        another_serves(self.story, &evicted, old.as_deref()).await?;
        self.healed("two evicted at once").await
    }
}
