//! The page cache that each broker should have: what it is given of memory less what it needs itself.
//!
//! What must hold: what a spec says is judged here and nowhere else, so that the operator and `forebay up` refuse the same.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::KubeSchema;
use serde::{Deserialize, Serialize};

use super::{ClusterSpec, size_schema};
use crate::quantity::quantity_units;

/// The page cache that each broker should have.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
pub struct PageCache {
    /// Memory that each broker should leave to the page cache, as a quantity of bytes, for example `4Gi` (enough for the segments that are
    /// written and read most): its memory request, or its limit when it has no request, less the most that the broker itself has had since
    /// it started. It is compared (condition `TuningInForce`) and changes nothing.
    #[schemars(schema_with = "size_schema")]
    #[x_kube(validation = Rule::new("isQuantity(self) && quantity(self).isGreaterThan(quantity('0'))").message("reserve is a positive quantity, for example 4Gi"))]
    pub reserve: Quantity,
}

impl ClusterSpec {
    /// Bytes wanted for the page cache of each broker.
    pub fn page_cache_reserve_bytes(&self) -> Option<i64> {
        self.page_cache.as_ref().and_then(|wanted| quantity_units(&wanted.reserve.0))
    }

    /// Bytes that a broker is given by its request, or, as Kubernetes has it, by its limit where there is no request; and which of the two.
    pub fn given_memory_bytes(&self) -> Option<(&'static str, i64)> {
        let resources = self.resources.as_ref()?;
        let given = [("requests", &resources.requests), ("limits", &resources.limits)];
        given.into_iter().find_map(|(kind, amounts)| {
            let amount = amounts.as_ref()?.get("memory")?;
            Some((kind, quantity_units(&amount.0)?))
        })
    }

    /// Why so much page cache can't be, whatever the broker itself needs.
    pub fn page_cache_problem(&self) -> Option<String> {
        let (wanted, (kind, given)) = (self.page_cache_reserve_bytes()?, self.given_memory_bytes()?);
        (wanted >= given).then(|| {
            format!(
                "pageCache.reserve is {} and resources.{kind}.memory is {}: nothing would be left to the broker itself; \
                 set it to less, or give the brokers more memory",
                bytes(wanted),
                bytes(given)
            )
        })
    }
}

/// Bytes as a quantity that people read.
pub fn bytes(bytes: i64) -> String {
    let units = [("Gi", 30), ("Mi", 20), ("Ki", 10)];
    let whole = units.into_iter().find(|(_, shift)| bytes != 0 && bytes % (1_i64 << shift) == 0);
    whole.map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem(resources: &serde_json::Value) -> Option<String> {
        let spec = json!({"replicas": 1, "disks": [], "pageCache": {"reserve": "4Gi"}, "resources": resources});
        serde_json::from_value::<ClusterSpec>(spec).unwrap().page_cache_problem()
    }

    #[test]
    fn a_reserve_that_leaves_a_broker_nothing_is_refused_by_its_request_or_its_limit() {
        assert_eq!(problem(&json!({"requests": {"memory": "4097Mi"}, "limits": {"memory": "1Gi"}})), None);
        let refused = problem(&json!({"requests": {"memory": "4096Mi"}, "limits": {"memory": "8Gi"}})).unwrap();
        assert!(refused.contains("pageCache.reserve is 4Gi and resources.requests.memory is 4Gi"), "{refused}");
        let refused = problem(&json!({"requests": {"cpu": "1"}, "limits": {"memory": "2G"}})).unwrap();
        assert!(refused.contains("resources.limits.memory is 1953125Ki"), "{refused}");
        assert_eq!(problem(&json!({"limits": {"cpu": "1"}})), None);
    }

    #[test]
    fn bytes_are_written_in_the_largest_unit_that_is_exact() {
        for (number, text) in [(0, "0"), (1, "1"), (1536 << 20, "1536Mi"), (3 << 30, "3Gi"), (1 << 10, "1Ki")] {
            assert_eq!(bytes(number), text);
        }
    }
}
