module elbowroom.dev/testguest

go 1.26
