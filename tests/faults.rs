//! Faults of the world around a real server: kills, full and failing disks, damaged files.

mod faults_damage;
mod faults_derived;
mod faults_disk;
mod faults_kill;
mod faults_stall;
