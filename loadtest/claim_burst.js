// A burst of claims over gRPC: each is submitted, then waited for until it has its device. The thresholds below are the
// verdict. Run by `cargo xtask loadtest claim_burst`; see README.md for what it proves.
//
// Environment: SERVER (host:port), CLAIMS, CLIENTS, SUMMARY (file of the JSON summary).

import grpc from 'k6/net/grpc';
import encoding from 'k6/encoding';
import { Rate, Trend } from 'k6/metrics';

const SERVER = __ENV.SERVER || '127.0.0.1:7070';
const CLAIMS = Number(__ENV.CLAIMS || 1000);
const CLIENTS = Number(__ENV.CLIENTS || 50);
const SUMMARY = __ENV.SUMMARY || 'target/loadtest/claim_burst.json';

const DRIVER = 'gpu.loadtest.example';
const CLASS = 'loadtest-gpu';
const DEVICES_PER_POOL = 8;
const PAGE = 500;

const submitMs = new Trend('submit_ms', true);
const allocatedMs = new Trend('allocated_ms', true);
const errors = new Rate('errors');

export const options = {
  scenarios: {
    burst: { executor: 'shared-iterations', vus: CLIENTS, iterations: CLAIMS, maxDuration: '5m' },
  },
  setupTimeout: '2m',
  teardownTimeout: '5m',
  summaryTrendStats: ['min', 'med', 'p(95)', 'p(99)', 'max'],
  thresholds: {
    // A claim that was refused, lost or not allocated.
    errors: ['rate<0.01'],
    // Submit answers after the commit is durable.
    submit_ms: ['p(95)<2000'],
    // From sending Submit to the answer of Wait.
    allocated_ms: ['p(95)<10000'],
  },
};

const client = new grpc.Client();
client.load([import.meta.resolve('../libs/rpc/proto').replace('file://', '')], 'dray/v1/dray.proto');

let connected = false;

// One connection per client, kept for all its claims.
function call(method, message, timeout = '60s') {
  if (!connected) {
    client.connect(SERVER, { plaintext: true, timeout: '10s' });
    connected = true;
  }
  return client.invoke(`dray.v1.${method}`, message, { timeout });
}

function must(method, message) {
  const answer = call(method, message);
  if (answer.status !== grpc.StatusOK) {
    throw new Error(`${method}: ${answer.error ? answer.error.message : answer.status}`);
  }
  return answer.message;
}

// As many devices as claims, so that the burst ends with every device taken.
export function setup() {
  const run = `${Date.now()}`;
  const deviceClass = {
    apiVersion: 'resource.k8s.io/v1',
    kind: 'DeviceClass',
    metadata: { name: CLASS },
    spec: { selectors: [{ cel: { expression: `device.driver == "${DRIVER}"` } }] },
  };
  must('Objects/Apply', { json: encoding.b64encode(JSON.stringify(deviceClass)) });
  const pools = [];
  for (let first = 0; first < CLAIMS; first += DEVICES_PER_POOL) {
    const pool = `loadtest-${run}-${pools.length}`;
    const devices = [];
    for (let i = first; i < Math.min(first + DEVICES_PER_POOL, CLAIMS); i++) {
      devices.push({ name: `gpu-${i - first}` });
    }
    must('Pools/Publish', { driver: DRIVER, pool, node_name: pool, devices });
    pools.push(pool);
  }
  return { namespace: `loadtest-${run}`, pools };
}

const spec = {
  devices: { requests: [{ name: 'gpu', exactly: { device_class_name: CLASS, allocation_mode: 'ExactCount', count: 1 } }] },
};

export default function (data) {
  const began = Date.now();
  const submitted = call('Units/Submit', {
    namespace: data.namespace,
    client_id: `${__VU}-${__ITER}`,
    claims: [{ spec }],
  });
  if (submitted.status !== grpc.StatusOK) {
    errors.add(true);
    console.error(`submit: ${submitted.error ? submitted.error.message : submitted.status}`);
    return;
  }
  submitMs.add(Date.now() - began);
  const waited = call('Units/Wait', { uid: submitted.message.unitUid, timeout: '45s' });
  const allocated = waited.status === grpc.StatusOK && waited.message.phase === 'UNIT_PHASE_ALLOCATED';
  errors.add(!allocated);
  if (allocated) {
    allocatedMs.add(Date.now() - began);
  } else {
    console.error(`wait: ${waited.error ? waited.error.message : waited.message.reason}`);
  }
}

// Leaves the server as it was, so that the next run finds room.
export function teardown(data) {
  for (;;) {
    const page = must('Units/List', { namespace: data.namespace, page_size: PAGE });
    const left = (page.units || []).filter((unit) => unit.phase !== 'UNIT_PHASE_RELEASING');
    if (left.length === 0) {
      break;
    }
    left.forEach((unit) => must('Units/Delete', { uid: unit.uid }));
  }
  data.pools.forEach((pool) => must('Pools/Withdraw', { driver: DRIVER, pool }));
}

export function handleSummary(data) {
  const metric = (name) => (data.metrics[name] || { values: {} }).values;
  const trend = (name) => {
    const values = metric(name);
    return { min: values.min, p50: values.med, p95: values['p(95)'], p99: values['p(99)'], max: values.max };
  };
  const passed = Object.values(data.metrics).every((m) => Object.values(m.thresholds || {}).every((t) => t.ok));
  const summary = {
    script: 'claim_burst',
    server: SERVER,
    claims: CLAIMS,
    clients: CLIENTS,
    iterations: metric('iterations').count,
    errors: metric('errors').rate,
    claims_per_s: metric('iterations').rate,
    submit_ms: trend('submit_ms'),
    allocated_ms: trend('allocated_ms'),
    passed,
    k6: data,
  };
  const line = (name, t) => `${name.padEnd(14)}p50 ${shown(t.p50)}  p95 ${shown(t.p95)}  p99 ${shown(t.p99)}  max ${shown(t.max)}\n`;
  const text =
    `\nclaim_burst: ${summary.iterations} of ${CLAIMS} claims by ${CLIENTS} clients, errors ${(summary.errors * 100).toFixed(2)} %\n` +
    line('submit', summary.submit_ms) +
    line('allocated', summary.allocated_ms) +
    `thresholds    ${passed ? 'passed' : 'CROSSED'}\n`;
  return { stdout: text, [SUMMARY]: `${JSON.stringify(summary, null, 2)}\n` };
}

function shown(ms) {
  return ms === undefined ? '-' : `${ms.toFixed(0)} ms`;
}
