//! The protocol's error codes. Names and numbers are facts of the protocol; the messages are ours and are for people.

macro_rules! error_codes {
    ($($code:literal $variant:ident $name:literal $retriable:literal $message:literal;)*) => {
        /// What went wrong, by the number the wire has for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ErrorCode {
            $(
                #[doc = concat!("`", $name, "` (", $code, "): ", $message, ".")]
                $variant = $code
            ),*
        }

        impl ErrorCode {
            /// Every code, in ascending order.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The code with this number; a number nobody has given out counts as [`ErrorCode::UnknownServerError`].
            #[must_use]
            pub const fn from_code(code: i16) -> Self {
                match code {
                    $($code => Self::$variant,)*
                    _ => Self::UnknownServerError,
                }
            }

            /// The protocol's own name, as in `NOT_LEADER_OR_FOLLOWER`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// What the code says, for people.
            #[must_use]
            pub const fn message(self) -> &'static str {
                match self {
                    $(Self::$variant => $message,)*
                }
            }

            /// Whether clients may try the same request again.
            #[must_use]
            pub const fn is_retriable(self) -> bool {
                match self {
                    $(Self::$variant => $retriable,)*
                }
            }
        }
    };
}

impl ErrorCode {
    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Whether this is [`ErrorCode::None`].
    #[must_use]
    pub const fn is_none(self) -> bool {
        matches!(self, Self::None)
    }
}

#[expect(clippy::derivable_impls, reason = "the macro writes all variants alike")]
impl Default for ErrorCode {
    fn default() -> Self {
        Self::None
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

error_codes! {
    -1 UnknownServerError "UNKNOWN_SERVER_ERROR" false "the server failed in a way it did not expect";
    0 None "NONE" false "no error";
    1 OffsetOutOfRange "OFFSET_OUT_OF_RANGE" false "the offset is outside the range that the partition holds";
    2 CorruptMessage "CORRUPT_MESSAGE" true "the records are corrupt: checksum, size or format is wrong, or a compacted topic got no key";
    3 UnknownTopicOrPartition "UNKNOWN_TOPIC_OR_PARTITION" true "this broker has no such topic or partition";
    4 InvalidFetchSize "INVALID_FETCH_SIZE" false "the fetch size is not valid";
    5 LeaderNotAvailable "LEADER_NOT_AVAILABLE" true "the partition has no leader at the moment";
    6 NotLeaderOrFollower "NOT_LEADER_OR_FOLLOWER" true "this broker is not the leader (or not a replica) of the partition";
    7 RequestTimedOut "REQUEST_TIMED_OUT" true "the request was not finished within its time";
    8 BrokerNotAvailable "BROKER_NOT_AVAILABLE" false "the broker is not available";
    9 ReplicaNotAvailable "REPLICA_NOT_AVAILABLE" true "the replica is not available on this broker";
    10 MessageTooLarge "MESSAGE_TOO_LARGE" false "a record batch is larger than max.message.bytes allows";
    11 StaleControllerEpoch "STALE_CONTROLLER_EPOCH" false "the controller has moved to another broker";
    12 OffsetMetadataTooLarge "OFFSET_METADATA_TOO_LARGE" false "the metadata given with a committed offset is too large";
    13 NetworkException "NETWORK_EXCEPTION" true "the connection broke before the response came";
    14 CoordinatorLoadInProgress "COORDINATOR_LOAD_IN_PROGRESS" true "the coordinator is still loading its state";
    15 CoordinatorNotAvailable "COORDINATOR_NOT_AVAILABLE" true "there is no coordinator available";
    16 NotCoordinator "NOT_COORDINATOR" true "this broker is not the coordinator asked for";
    17 InvalidTopicException "INVALID_TOPIC_EXCEPTION" false "the topic name is not valid, or this topic may not be used so";
    18 RecordListTooLarge "RECORD_LIST_TOO_LARGE" false "a record batch is larger than a segment may be";
    19 NotEnoughReplicas "NOT_ENOUGH_REPLICAS" true "fewer replicas are in sync than min.insync.replicas asks for";
    20 NotEnoughReplicasAfterAppend "NOT_ENOUGH_REPLICAS_AFTER_APPEND" true "written, but by fewer replicas than min.insync.replicas asks for";
    21 InvalidRequiredAcks "INVALID_REQUIRED_ACKS" false "acks must be -1, 0 or 1";
    22 IllegalGeneration "ILLEGAL_GENERATION" false "the generation is not the group's current one";
    23 InconsistentGroupProtocol "INCONSISTENT_GROUP_PROTOCOL" false "the member's protocols do not fit the group's, or it named none";
    24 InvalidGroupId "INVALID_GROUP_ID" false "the group id is not valid";
    25 UnknownMemberId "UNKNOWN_MEMBER_ID" false "the coordinator does not know this member";
    26 InvalidSessionTimeout "INVALID_SESSION_TIMEOUT" false "the session timeout is outside the range the broker allows";
    27 RebalanceInProgress "REBALANCE_IN_PROGRESS" false "the group is rebalancing: join again";
    28 InvalidCommitOffsetSize "INVALID_COMMIT_OFFSET_SIZE" false "the offset commit is too large";
    29 TopicAuthorizationFailed "TOPIC_AUTHORIZATION_FAILED" false "not authorized for the topic";
    30 GroupAuthorizationFailed "GROUP_AUTHORIZATION_FAILED" false "not authorized for the group";
    31 ClusterAuthorizationFailed "CLUSTER_AUTHORIZATION_FAILED" false "not authorized for the cluster";
    32 InvalidTimestamp "INVALID_TIMESTAMP" false "a record's timestamp is outside the range the topic allows";
    33 UnsupportedSaslMechanism "UNSUPPORTED_SASL_MECHANISM" false "the SASL mechanism is not offered here";
    34 IllegalSaslState "ILLEGAL_SASL_STATE" false "the request does not fit the state of the SASL exchange";
    35 UnsupportedVersion "UNSUPPORTED_VERSION" false "this version of the API is not supported";
    36 TopicAlreadyExists "TOPIC_ALREADY_EXISTS" false "a topic of this name exists already";
    37 InvalidPartitions "INVALID_PARTITIONS" false "the number of partitions is not valid";
    38 InvalidReplicationFactor "INVALID_REPLICATION_FACTOR" false "the replication factor is below 1 or above the number of brokers";
    39 InvalidReplicaAssignment "INVALID_REPLICA_ASSIGNMENT" false "the replica assignment is not valid";
    40 InvalidConfig "INVALID_CONFIG" false "the configuration is not valid";
    41 NotController "NOT_CONTROLLER" true "this node is not the controller";
    42 InvalidRequest "INVALID_REQUEST" false "the request is malformed or contradicts itself";
    43 UnsupportedForMessageFormat "UNSUPPORTED_FOR_MESSAGE_FORMAT" false "the record format does not support the request";
    44 PolicyViolation "POLICY_VIOLATION" false "the request breaks a policy";
    45 OutOfOrderSequenceNumber "OUT_OF_ORDER_SEQUENCE_NUMBER" false "the producer's sequence number does not follow the last one";
    46 DuplicateSequenceNumber "DUPLICATE_SEQUENCE_NUMBER" false "the producer's sequence number was written already";
    47 InvalidProducerEpoch "INVALID_PRODUCER_EPOCH" false "the producer's epoch is older than the current one";
    48 InvalidTxnState "INVALID_TXN_STATE" false "the transaction's state does not allow this";
    49 InvalidProducerIdMapping "INVALID_PRODUCER_ID_MAPPING" false "the producer id does not belong to this transactional id";
    50 InvalidTransactionTimeout "INVALID_TRANSACTION_TIMEOUT" false "the transaction timeout is above transaction.max.timeout.ms";
    51 ConcurrentTransactions "CONCURRENT_TRANSACTIONS" true "another operation on the same transaction is under way";
    52 TransactionCoordinatorFenced "TRANSACTION_COORDINATOR_FENCED" false "the transaction coordinator that sent this is no longer the current one";
    53 TransactionalIdAuthorizationFailed "TRANSACTIONAL_ID_AUTHORIZATION_FAILED" false "not authorized for the transactional id";
    54 SecurityDisabled "SECURITY_DISABLED" false "security is switched off";
    55 OperationNotAttempted "OPERATION_NOT_ATTEMPTED" false "not attempted, because another part of the request failed";
    56 KafkaStorageError "KAFKA_STORAGE_ERROR" true "the disk failed under the partition's log";
    57 LogDirNotFound "LOG_DIR_NOT_FOUND" false "the broker has no such log directory";
    58 SaslAuthenticationFailed "SASL_AUTHENTICATION_FAILED" false "SASL authentication failed";
    59 UnknownProducerId "UNKNOWN_PRODUCER_ID" false "nothing is known about this producer id any more";
    60 ReassignmentInProgress "REASSIGNMENT_IN_PROGRESS" false "the partition is being reassigned";
    61 DelegationTokenAuthDisabled "DELEGATION_TOKEN_AUTH_DISABLED" false "delegation tokens are switched off";
    62 DelegationTokenNotFound "DELEGATION_TOKEN_NOT_FOUND" false "there is no such delegation token";
    63 DelegationTokenOwnerMismatch "DELEGATION_TOKEN_OWNER_MISMATCH" false "the principal neither owns nor may renew the token";
    64 DelegationTokenRequestNotAllowed "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" false "delegation tokens can't be asked for over this kind of connection";
    65 DelegationTokenAuthorizationFailed "DELEGATION_TOKEN_AUTHORIZATION_FAILED" false "not authorized for the delegation token";
    66 DelegationTokenExpired "DELEGATION_TOKEN_EXPIRED" false "the delegation token has expired";
    67 InvalidPrincipalType "INVALID_PRINCIPAL_TYPE" false "the principal type is not supported";
    68 NonEmptyGroup "NON_EMPTY_GROUP" false "the group is not empty";
    69 GroupIdNotFound "GROUP_ID_NOT_FOUND" false "there is no such group";
    70 FetchSessionIdNotFound "FETCH_SESSION_ID_NOT_FOUND" true "there is no such fetch session";
    71 InvalidFetchSessionEpoch "INVALID_FETCH_SESSION_EPOCH" true "the fetch session's epoch is not the expected one";
    72 ListenerNotFound "LISTENER_NOT_FOUND" true "the leader has no listener of the name that was used here";
    73 TopicDeletionDisabled "TOPIC_DELETION_DISABLED" false "topics may not be deleted";
    74 FencedLeaderEpoch "FENCED_LEADER_EPOCH" true "the leader epoch is older than the broker's";
    75 UnknownLeaderEpoch "UNKNOWN_LEADER_EPOCH" true "the leader epoch is newer than the broker's";
    76 UnsupportedCompressionType "UNSUPPORTED_COMPRESSION_TYPE" false "the client can't read the partition's compression";
    77 StaleBrokerEpoch "STALE_BROKER_EPOCH" false "the broker epoch is not the current one";
    78 OffsetNotAvailable "OFFSET_NOT_AVAILABLE" true "the new leader does not know the high watermark yet";
    79 MemberIdRequired "MEMBER_ID_REQUIRED" false "join again with the member id that was given out";
    80 PreferredLeaderNotAvailable "PREFERRED_LEADER_NOT_AVAILABLE" true "the preferred leader is not available";
    81 GroupMaxSizeReached "GROUP_MAX_SIZE_REACHED" false "the group has as many members as it may";
    82 FencedInstanceId "FENCED_INSTANCE_ID" false "another member has taken over this group.instance.id";
    83 EligibleLeadersNotAvailable "ELIGIBLE_LEADERS_NOT_AVAILABLE" true "no replica that may lead is available";
    84 ElectionNotNeeded "ELECTION_NOT_NEEDED" true "the partition has its wanted leader already";
    85 NoReassignmentInProgress "NO_REASSIGNMENT_IN_PROGRESS" false "the partition is not being reassigned";
    86 GroupSubscribedToTopic "GROUP_SUBSCRIBED_TO_TOPIC" false "the group still subscribes to the topic";
    87 InvalidRecord "INVALID_RECORD" false "a record failed validation";
    88 UnstableOffsetCommit "UNSTABLE_OFFSET_COMMIT" true "offsets of a transaction that is not finished yet are in the way";
    89 ThrottlingQuotaExceeded "THROTTLING_QUOTA_EXCEEDED" true "the quota is used up";
    90 ProducerFenced "PRODUCER_FENCED" false "a newer producer with the same transactional id has taken over";
    91 ResourceNotFound "RESOURCE_NOT_FOUND" false "there is no such resource";
    92 DuplicateResource "DUPLICATE_RESOURCE" false "the same resource is named twice";
    93 UnacceptableCredential "UNACCEPTABLE_CREDENTIAL" false "the credential is not acceptable";
    94 InconsistentVoterSet "INCONSISTENT_VOTER_SET" false "sender or receiver is not one of the expected voters";
    95 InvalidUpdateVersion "INVALID_UPDATE_VERSION" false "the version to update to is not valid";
    96 FeatureUpdateFailed "FEATURE_UPDATE_FAILED" false "the feature could not be updated";
    97 PrincipalDeserializationFailure "PRINCIPAL_DESERIALIZATION_FAILURE" false "the forwarded principal could not be read";
    98 SnapshotNotFound "SNAPSHOT_NOT_FOUND" false "there is no such snapshot";
    99 PositionOutOfRange "POSITION_OUT_OF_RANGE" false "the position is outside the snapshot";
    100 UnknownTopicId "UNKNOWN_TOPIC_ID" true "this broker has no topic with this id";
    101 DuplicateBrokerRegistration "DUPLICATE_BROKER_REGISTRATION" false "a broker with this id is registered already";
    102 BrokerIdNotRegistered "BROKER_ID_NOT_REGISTERED" false "no broker with this id is registered";
    103 InconsistentTopicId "INCONSISTENT_TOPIC_ID" true "the topic id is not that of the partition's log";
    104 InconsistentClusterId "INCONSISTENT_CLUSTER_ID" false "the cluster id is not this cluster's";
    105 TransactionalIdNotFound "TRANSACTIONAL_ID_NOT_FOUND" false "there is no such transactional id";
    106 FetchSessionTopicIdError "FETCH_SESSION_TOPIC_ID_ERROR" true "topic ids and topic names are mixed in one fetch session";
    107 IneligibleReplica "INELIGIBLE_REPLICA" false "the new in-sync set names a replica that may not be in it";
    108 NewLeaderElected "NEW_LEADER_ELECTED" false "the partition was changed, and has a new leader now";
    109 OffsetMovedToTieredStorage "OFFSET_MOVED_TO_TIERED_STORAGE" false "the offset is in tiered storage";
    110 FencedMemberEpoch "FENCED_MEMBER_EPOCH" false "the member epoch is fenced: give up all partitions and join again";
    111 UnreleasedInstanceId "UNRELEASED_INSTANCE_ID" false "the instance id is still in use by another member";
    112 UnsupportedAssignor "UNSUPPORTED_ASSIGNOR" false "the group does not support the assignor";
    113 StaleMemberEpoch "STALE_MEMBER_EPOCH" false "the member epoch is out of date: heartbeat, then try again";
    114 MismatchedEndpointType "MISMATCHED_ENDPOINT_TYPE" false "this endpoint is of another type than the request expects";
    115 UnsupportedEndpointType "UNSUPPORTED_ENDPOINT_TYPE" false "the endpoint type is not supported";
    116 UnknownControllerId "UNKNOWN_CONTROLLER_ID" false "no controller of this id is known";
    117 UnknownSubscriptionId "UNKNOWN_SUBSCRIPTION_ID" false "the telemetry subscription id is not valid or out of date";
    118 TelemetryTooLarge "TELEMETRY_TOO_LARGE" false "the telemetry is larger than the broker takes";
    119 InvalidRegistration "INVALID_REGISTRATION" false "the broker's registration is not valid";
    120 TransactionAbortable "TRANSACTION_ABORTABLE" false "the transaction failed: abort it, the transactional id stays usable";
    121 InvalidRecordState "INVALID_RECORD_STATE" false "the record's acknowledgement does not fit its state";
    122 ShareSessionNotFound "SHARE_SESSION_NOT_FOUND" true "there is no such share session";
    123 InvalidShareSessionEpoch "INVALID_SHARE_SESSION_EPOCH" true "the share session's epoch is not the expected one";
    124 FencedStateEpoch "FENCED_STATE_EPOCH" false "the state epoch is not the coordinator's";
    125 InvalidVoterKey "INVALID_VOTER_KEY" false "the voter's key is not the replica's";
    126 DuplicateVoter "DUPLICATE_VOTER" false "the voter is in the set already";
    127 VoterNotFound "VOTER_NOT_FOUND" false "the voter is not in the set";
    128 InvalidRegularExpression "INVALID_REGULAR_EXPRESSION" false "the regular expression is not valid";
    129 RebootstrapRequired "REBOOTSTRAP_REQUIRED" false "the client's view of the cluster is out of date: bootstrap again";
    130 StreamsInvalidTopology "STREAMS_INVALID_TOPOLOGY" false "the topology is not valid";
    131 StreamsInvalidTopologyEpoch "STREAMS_INVALID_TOPOLOGY_EPOCH" false "the topology epoch is not valid";
    132 StreamsTopologyFenced "STREAMS_TOPOLOGY_FENCED" false "the topology epoch is out of date";
    133 ShareSessionLimitReached "SHARE_SESSION_LIMIT_REACHED" true "there are as many share sessions as there may be";
    134 GroupDeletionFailed "GROUP_DELETION_FAILED" false "the group could not be deleted: its own message says why";
    135 StreamsTopologyDescriptionUpdateFailed "STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED" false "the topology description could not be updated: its own message says why";
    136 ControllerIdNotRegistered "CONTROLLER_ID_NOT_REGISTERED" false "no controller with this id is registered";
}
