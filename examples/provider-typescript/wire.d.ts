// The messages of the wire that this provider reads and writes, by hand from the
// schemas of the kit (kit/schema). Text that can be any bytes is escaped: see
// unescape in codec.mjs.
declare namespace Wire {
  type Authority = "runner_enforced" | "provider_attested" | "advisory" | "not_enforced";
  type State = "provisioning" | "active";

  interface Platform {
    os: string;
    architecture: string;
  }

  interface Resources {
    cpu_millis: number;
    memory_bytes: number;
    disk_bytes: number;
    max_processes: number;
    max_duration_seconds: number;
  }

  interface Target {
    provider: string;
    provider_revision: string;
    materialization_revision: string;
    placement: "local" | "remote";
  }

  interface Capabilities extends Target {
    tiers: string[];
    platforms: Platform[];
    image_mode: "fixed" | "profile";
    fixed_base_images: string[];
    package_managers: string[];
    network_modes: string[];
    retention_modes: string[];
    snapshots: boolean;
    enforcement: Record<
      | "sandbox_isolation" | "root_read_only" | "non_root" | "no_new_privileges" | "capabilities_dropped"
      | "mounts_sealed" | "disk_limit" | "network_policy" | "resource_limits",
      Authority
    >;
    egress_certification: string;
    minimum_resources: Resources;
    maximum_resources: Resources;
    max_mounts: number;
    list_dir?: boolean;
    snapshot_clone?: boolean;
  }

  interface Info {
    revision: "checkfu.sandbox-wire.v1";
    members: string[];
    limits: { max_wait_ms: number; output_window_bytes?: number; input_buffer_bytes?: number };
    async_operations: boolean;
  }

  interface Profile {
    profile_id: string;
    profile_version: number;
    tier: string;
    base_image: string;
    packages: { manager: string; name: string; version?: string }[];
    network_policy: { mode: string };
    resource_limits: Resources;
    retention_mode: string;
  }

  interface Mount {
    mount_path: string;
    access: "read_only" | "read_write";
    kind: string;
  }

  interface ProvisionRequest {
    workspace_id: string;
    session_id: string;
    run_id: string;
    attempt_id: string;
    lease_id: string;
    lease_epoch: number;
    target: Target;
    profile: Profile;
    platform: Platform;
    root_image: string;
    mounts: Mount[];
    expires_at: string;
  }

  interface Instance extends ProvisionRequest {
    instance_id: string;
    provider: string;
    placement: string;
    state: State;
    output_path: string;
    materialization: {
      profile_digest: string;
      image_reference: string;
      image_digest: string;
      provider_revision: string;
      materialization_revision: string;
    };
  }

  interface InstanceRequest {
    instance_id: string;
  }

  interface ReleaseRequest extends InstanceRequest {
    expires_at?: string;
  }

  interface SnapshotRequest extends InstanceRequest {
    expires_at: string;
  }

  interface Snapshot {
    snapshot_id: string;
    provider: string;
    placement: string;
    source_instance_id: string;
    workspace_id: string;
    session_id: string;
    profile_id: string;
    profile_version: number;
    profile_digest: string;
    created_at: string;
    expires_at: string;
  }

  interface CloneRequest {
    snapshot: Snapshot;
    target_session_id: string;
  }

  interface ResumeRequest {
    request: ProvisionRequest;
    snapshot: Snapshot;
  }

  interface FileCall extends InstanceRequest {
    path: string;
    size: number;
    digest: string;
    executable?: boolean;
    symlink?: string;
  }

  interface ReadFileRequest extends InstanceRequest {
    path: string;
    allowed_root: string;
    maximum_bytes: number;
  }

  interface FileMember {
    path: string;
    maximum_bytes: number;
  }

  interface ReadFilesRequest extends InstanceRequest {
    allowed_root: string;
    files: FileMember[];
    aggregate_maximum_bytes: number;
  }

  interface ListRequest extends InstanceRequest {
    root: string;
    max_entries: number;
  }

  interface Program {
    executable: string;
    arguments: string[];
    working_directory: string;
    environment: Record<string, string>;
  }

  interface Command extends Program {
    timeout_seconds: number;
    output_limit_bytes: number;
  }

  interface ProcessRequest extends InstanceRequest {
    process_id: string;
  }

  interface OpenProcessRequest extends ProcessRequest {
    process: Program;
  }

  interface StreamRequest extends ProcessRequest {
    attach_id: string;
    cursor: number;
    wait_ms: number;
    heartbeat_ms: number;
  }

  interface InputCall extends ProcessRequest {
    offset: number;
    end: boolean;
  }

  interface WaitRequest extends ProcessRequest {
    wait_ms: number;
  }

  interface SignalRequest extends ProcessRequest {
    signal: string;
  }

  interface ExecuteCall extends InstanceRequest {
    command: Command;
  }

  interface CleanupRequest {
    now: string;
    orphaned_before: string;
    pinned_snapshots?: string[];
  }
}
