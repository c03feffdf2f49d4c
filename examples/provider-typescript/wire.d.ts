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
  }

  interface Info {
    revision: "checkfu.sandbox-wire.v1";
    members: string[];
    limits: { max_wait_ms: number };
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
    mounts: { mount_path: string; access: string; kind: string }[];
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

  interface Command {
    executable: string;
    arguments: string[];
    working_directory: string;
    environment: Record<string, string>;
    timeout_seconds: number;
    output_limit_bytes: number;
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
